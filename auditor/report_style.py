"""How the page of a report looks: on a screen, in the dark, and on paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--paper:#fff;--tint:#f6f8fa;--good:#1a7f37;--bad:#b3261e;
--warn:#9a6700;--live:#6e9ecf;--zero:#e3e8ee;--old:#c9b458;--broken:#7b3fa0;--residue:#c8102e;--log:#0b5cad}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;--line:#3d444d;--paper:#0d1117;--tint:#161b22;
--good:#4ac26b;--bad:#ff7b72;--warn:#e3b341;--live:#3d76ad;--zero:#22303f;--old:#a8902f;--log:#79b8ff}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--paper);margin:0}
main{max-width:64rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.7rem;margin:0 0 .5rem}h2{font-size:1.25rem;margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .3rem}p{max-width:46rem}code,pre,.hash{font-family:ui-monospace,Menlo,monospace;
font-size:.85em}pre{background:var(--tint);border:1px solid var(--line);padding:.8rem;overflow-x:auto;
white-space:pre-wrap;word-break:break-all}.hash{overflow-wrap:anywhere}
.verdict{border:2px solid;border-radius:.5rem;padding:1rem 1.25rem;margin:1rem 0}
.verdict strong{font-size:1.4rem;display:block}.clean{border-color:var(--good)}.clean strong{color:var(--good)}
.findings{border-color:var(--bad)}.findings strong{color:var(--bad)}
.inconclusive{border-color:var(--warn)}.inconclusive strong{color:var(--warn)}
table{border-collapse:collapse;width:100%;font-size:.92rem;margin:.5rem 0}th,td{text-align:left;vertical-align:top;
padding:.35rem .6rem .35rem 0;
overflow-wrap:anywhere;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:600}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.word{white-space:nowrap}
.scroll{overflow-x:auto}
th,.critical,.high,.medium{white-space:nowrap}
.critical{color:var(--bad);font-weight:700}.high{color:var(--bad)}.medium{color:var(--warn)}.soft{color:var(--soft)}
.card{border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;margin:.8rem 0;break-inside:avoid}
.card h3{margin-top:0}dl{display:grid;grid-template-columns:minmax(11rem,17rem) 1fr;gap:.15rem .8rem;margin:.4rem 0;
font-size:.92rem}dt{color:var(--soft)}dd{margin:0}
svg{display:block;max-width:100%;height:auto;margin:.5rem 0}svg text{font:13px system-ui,sans-serif;
fill:var(--soft)}svg .end{text-anchor:end}.axis,.lane{stroke:var(--line)}.growth{fill:none;stroke:var(--log);
stroke-width:2}.head{fill:var(--log)}.cosigned{fill:var(--good)}.erased{fill:var(--bad)}
.live{fill:var(--live)}.zero{fill:var(--zero)}.old{fill:var(--old)}.broken{fill:var(--broken)}
.residue{fill:var(--residue)}.key{display:inline-block;margin-right:1.2rem;font-size:.9rem}
.key svg{display:inline-block;width:.8rem;height:.8rem;margin:0 .35rem 0 0;vertical-align:baseline}
@media print{body{font-size:10.5pt;background:#fff;color:#000}main{max-width:none;padding:0}h2{break-after:avoid}
table{font-size:9pt}td,th{padding-top:.2rem;padding-bottom:.2rem}h3{break-after:avoid}.card{break-inside:auto}tr,svg{break-inside:avoid}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}details{display:block}}
@page{margin:18mm 15mm}
"""
