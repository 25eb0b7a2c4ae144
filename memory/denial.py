"""Whether a sentence says of a value that it holds no more: "no longer in X", "moved from X to Y", "used to be X".

Only then is a sentence that has a retired value in it certainly no stale copy. Each place where the value stands has
to be denied, or told as past, in words right beside it; a second negation, a plan, a doubt, hearsay, "still", "again"
or a word of undoing in the same sentence leaves it to a person. English only: what is said in another language is
not denied here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from memory.canon import Canonical, Reading, places_of, text_words

MAX_PLACES: Final = 12
WINDOW_CHARACTERS: Final = 400
Place = tuple[int, int]

# What stands in a sentence as it is judged for the retired value, for the current one, for a word that names what the
# text is about, and for a word of its record.
_R, _C, _K, _S = "\ue000", "\ue001", "\ue002", "\ue003"
_WORD: Final = rf"(?:{_S}|[^\W_][\w'-]*)"
# Words after which a negation, or a word for the past, no longer speaks of the value.
_BLOCKS: Final = (
    "that|if|whether|but|because|until|unless|without|except|he|she|it|they|we|i|you|who|which|where|what|and|or|"
    "only|just|merely|solely|simply|alone|always|often|usually|necessarily|yet|far|from|than|before|after|above|below|"
    "more|less|over|under|better|happier|"
    "doubt\\w*|forg\\w*|den(?:y|ies|ied)|sure|certain|clear|surpris\\w*|problem|secret|wrong|true|false|mistake\\w*|"
    "deprecated|outdated|obsolete|worry|matter|"
    "stop\\w*|quit\\w*|leav\\w*|left|mov\\w*|migrat\\w*|switch\\w*|chang\\w*|replac\\w*|retir\\w*|drop\\w*|abandon\\w*|"
    "gave|give|giv\\w*|cease\\w*|end\\w*|off|away|out|resign\\w*|succeed\\w*|remov\\w*|cancel\\w*|fail\\w*|refus\\w*|"
    "hesitat\\w*|regret\\w*|miss\\w*|mind\\w*|"
    "sa(?:y|ys|id)|t(?:ell|ells|old)|hear\\w*|think\\w*|thought|believ\\w*|mention\\w*|confirm\\w*|report\\w*|"
    "discussed|agreed|noted|stated|announced|decided|approved|set|again|still|back|now|new"
)
_GLUE: Final = rf"(?:(?!(?:{_BLOCKS})\b){_WORD} )"
# What may stand between a negation and the value: what the record says itself, and words for being, or being somewhere.
# "Not happy in X" does not deny X.
_THERE: Final = (
    rf"(?:(?:{_S}|be|been|is|are|was|were|in|at|on|for|the|an?|to|of|with|by|its|her|his|their|our|your|my|called|named"
    r"|set|liv\w+|run\w*|resid\w+|work\w*|employed|located|hosted|host|hosts|based|stored|stores?|deployed|kept|keeps?"
    r"|reach\w*|answers?|use[sd]?|using|start\w*|begins?|begun|cost|costs|leads?|led|likes?|liked|drinks?|prefers?"
    r"|preferred|belongs?|worth|situated|registered|assigned|held|holds?|valid|happen\w*|meets?|due|open\w*|sits?"
    r"|stands?|serv\w+|true for|any) )"
)
# Of what or where something was, and nothing of how it came about.
_BEING: Final = (
    r"(?:(?:in|at|on|for|with|the|an?|about|around|only|living|working|running|based|hosted|located|called|named|led|run"
    r"|by|employed|built|deployed|made|written|of) )"
)
_OWN: Final = r"(?:(?:the|an?|its|her|his|their|our|your|my|old|former|previous) )"
_WHOSE: Final = (
    r"(?:(?:the|an?|its|her|his|their|our|my|where|once|formerly|previously|originally|[^\W_][\w-]*'s)"
    rf" |{_K} )"
)
_NOUNS: Final = (
    r"(?:value|number|address|setting|name|limit|figure|entry|lead|leader|owner|cluster|instance|deployment|server|host"
    r"|installation|contract|plan|price|time|date|deadline|city|home|employer|job|boss|version|one|office|location"
    r"|region|database|backend|provider|supplier|account|flat|house|team|mail|email|line|phone)"
)
_PART: Final = rf"(?:(?:{_WORD}|{_K}|'s) )"
_OUTSET: Final = rf"(?:{_OWN}|(?:{_S}|{_NOUNS}) ){{0,3}}$"
_CHANGED: Final = (
    r"(?:moved|migrated|switched|changed|shifted|transferred|relocated|went|gone|raised|lowered|cut|reduced|increased"
    r"|decreased|renamed|rebranded|converted|ported|upgraded|downgraded|dropped|extended|shortened|bumped|pushed"
    r"|postponed|rescheduled|corrected|updated|adjusted|altered|took|taken|handed|passed|grew|grown|rose|risen|fell"
    r"|fallen|failed|rolled|returned|brought|turned|transitioned|swapped)"
)
_LEFT: Final = (
    r"(?:left|quit|abandoned|dropped|ditched|(?:gave|given) up|replaced|replaces|supersede[sd]|discarded|scrapped"
    r"|removed|decommissioned|deprecated|succeeded|succeeds|outgrew|outgrown|resigned from|retired from|phased out"
    r"|cancelled|canceled|deleted|shut down|turned off|switched off|departed|fled|parted with|got rid of|traded|swapped"
    r"|(?:stopped|ceased|quit) [\w'-]+ing(?: (?:in|at|for|with|on|from))?)"
)
_DEAD: Final = (
    r"(?:outdated|obsolete|wrong|incorrect|stale|deprecated|retired|gone|dead|over|history|replaced|superseded|dropped"
    r"|abandoned|decommissioned|scrapped|cancelled|canceled|withdrawn|discontinued|removed|deleted|closed|shut down"
    r"|switched off|turned off|taken down|invalid|void|revoked|out of (?:date|use|service)|past)"
)
_LIVED: Final = (
    r"(?:lived|worked|ran|resided|dwelt|belonged|preferred|liked|loved|drank|studied|taught|drove|spoke|wore|visited|met"
    r"|toured|attended|graduated|born|grew up|flew to|travell?ed to)"
)
_HELD_ONCE: Final = (
    rf"(?:{_LIVED}|was|were|had|kept|held|used|stored|hosted|started|began|stood|answered|charged|paid)"
)
_ENDED: Final = (
    rf"(?:\buntil (?!{_R})|\btill (?!{_R})|\bbefore (?!{_R})|\bback then\b|\bat the time\b|\bin those days\b"
    r"|\bin the past\b|\b(?:years|months) ago\b|\blast (?:year|month|week|spring|summer|autumn|winter)\b"
    r"|\boriginally\b|\bformerly\b|\bpreviously\b)"
)

# Each ends with the value, which stands at the place that is asked about.
_BEFORE: Final = (
    rf"\b(?:no longer|not|never|nor) {_THERE}{{0,5}}$",
    # "do not call K at X": what is negated is done to K.
    r"\b(?:not|never) (?:to )?(?:call|ring|phone|text|mail|email|e-mail|write|contact|reach|find|deploy|run|host|store"
    rf"|send) (?:to )?(?:{_K} )+(?:in|at|on|for|via|under|through) $",
    rf"(?<!\bis )(?<!\bare )(?<!\bget )(?<!\bgot )(?<!\bbe )\bused to {_GLUE}{{1,5}}$",
    rf"\b(?:formerly|previously|originally|initially) {_GLUE}{{0,4}}$",
    rf"\b(?:old|former|previous|prior|ex) (?:(?:{_K}|{_S}|{_NOUNS}|'s) )+"
    rf"(?:of (?:{_OWN}|(?:{_K}|{_S}|'s) )+)?(?:(?:is|was|in|at|on|of|:) )?$",
    rf"{_C} (?:(?!\b(?:and|or)\b){_WORD} |{_K} |'s )*"
    r"(?:instead of|rather than|in place of|as opposed to|in lieu of|unlike|vs|versus|over) "
    rf"{_OWN}{{0,2}}(?:(?:in|at|on|for|with) )?$",
    rf"{_C} (?:{_WORD} )*than (?:(?:it|they) (?:is|are|was|were) )?(?:(?:in|at|on|for|with) )?$",
    rf"(?:^|[,.;:(-] )(?:instead of|rather than|unlike) {_GLUE}{{0,2}}$",
)
# These hold where nothing is negated before them.
_TURNED: Final = (
    rf"\b{_CHANGED} (?:(?!\b(?:to|into|that|if)\b){_PART}|{_C} ){{0,7}}from {_OUTSET}",
    rf"\b{_CHANGED} (?:(?!\b(?:to|into|that|if)\b){_PART}){{0,4}}(?:off|off of|away from|out of) {_OUTSET}",
    rf"\b{_LEFT} {_OWN}{{0,3}}(?:(?:support for|use of|using) )?$",
    rf"{_C} (?:has |have )?(?:bought|acquired|inherited|received|took|got|won) {_PART}{{0,6}}from {_OUTSET}",
)
# These, too, where what holds now comes right after the value: "was promoted from X to Y".
_TURNED_TO: Final = (rf"\b[^\W_]+(?:ed|en) {_PART}{{0,7}}from {_OUTSET}",)
# These hold where nothing sounds like hearsay or like a claim of being right.
_WAS: Final = (
    rf"\b(?:was|were|had been) {_BEING}{{0,3}}$",
    rf"(?<!\bhas )(?<!\bhave )(?<!\bhad always )(?<!\bhas always )(?<!\bis )(?<!\bare )\b{_LIVED} "
    rf"(?:(?!\bto\b){_GLUE}){{0,3}}$",
)
_WAS_ENDED: Final = (
    rf"(?<!\bhas )(?<!\bhave )(?<!\bis )(?<!\bare )\b{_HELD_ONCE} (?:(?!\bto\b){_GLUE}){{0,3}}$",
)
# Each begins right after the value.
_AFTER: Final = (
    rf"^(?:is|are|was|were|has been|have been|had been|got) (?:(?:now|since|already|long|finally) )*{_DEAD}\b",
    rf"^(?:was|were|has been) (?:changed|raised|lowered|cut|renamed|moved) to {_C}",
    rf"^(?:- > |= > |→ |became |is now |are now ){_C}",
    rf"^(?:is|are|was|were|does|do|can|has|have) (?:no longer|not|never) (?:be )?(?:(?:in|for|of|at|the|its|her|his"
    rf"|their|our|{_K}|'s|[^\W_][\w-]*'s) )*(?:{_K}|{_S}|(?:used|in use|valid|current|where|{_NOUNS})\b)"
    r"(?!(?:[^,;:]*\b(?:from|left|moved|off|only|without|bad|wrong|far|old|former)\b))",
    r"^(?:no longer|no more)(?= ?[,.;:!)]| ?$| (?:used|valid|in use|current)\b)",
    rf"^no longer (?:{_S}|{_K}|leads?|runs?|owns?|hosts?|works?|serves?|uses?|answers?|applies|holds?) ",
    rf"^(?:has |had |have )?(?:just |recently |since )?(?:stepped down|resigned|retired as|quit|handed"
    rf"|passed (?:{_K} )+on|gave up|used to|formerly|previously|was succeeded by|was replaced by"
    rf"|left (?:the |our )?(?:{_K}|{_C}|{_S})|stopped|ceased)(?= )",
)
_AFTER_WAS: Final = (
    rf"^(?:was|were|had been) {_WHOSE}(?!(?:{_WORD} |{_K} )*(?:right|correct|choice|decision|answer|winner|next"
    r"|successor|moved|changed|set|switched|raised|corrected|new)\b)",
)
# R ran K until May: the value itself was at it, and is not now.
_AFTER_ENDED: Final = (
    r"^(?:had |once )?(?!(?:replaced|superseded|succeeded|joined|returned|started|moved|resumed|remained|stayed"
    r"|followed)\b)(?:[^\W_]+ed|ran|led|held|kept|was|had|wrote|taught|drove|built|made|owned) ",
)
# A change that is told as done: "the migration from X to Y is complete".
_DONE: Final = (
    rf"\b(?:migration|move|switch|change|transition|upgrade|cutover|increase|reduction|relocation) "
    rf"(?:of (?:the )?(?:{_K} |{_WORD} ){{1,3}})?from (?:the )?{_R} to (?:the )?{_C} (?:(?:is|was|has been) )?"
    r"(?:now |fully )?(?:complete|completed|done|finished|over|went|took|happened|cost|caused|succeeded)\b"
)

# With one of these in the sentence nothing is certain.
_PLANS: Final = (
    r"\b(?:will|would|shall|should|could|might|may|must|plan\w*|going to|about to|intend\w*|want\w*|propos\w*"
    r"|consider\w*|hop(?:e|es|ed|ing)|wish\w*|next|tomorrow|soon|ask(?:ed|s)?|request\w*|need(?:s|ed)?"
    r"|ha(?:ve|s|d) to|tr(?:y|ies|ied|ying)|attempt\w*|almost|nearly|unable|failed to|refus\w*|if|unless|whether"
    r"|suppose|imagine|pretend|why|being|becomes?)\b|\?"
)
_KEPT: Final = (
    r"\b(?:still|again|anyway|after all|all along|once more|yet|as ever|remains?|unchanged|regardless|not even|not only"
    rf"|and back)\b|{_R} (?:is )?back\b|\bback (?:(?:in|to|at|on|with) )*{_R}|{_R} (?:in charge|alone|only|as is)\b"
)
# In a sentence beside it, too: what was said may be taken back there.
_UNDONE: Final = (
    r"\b(?:revert\w*|rolled back|roll(?:ing)? back|rollback|undone|undid|undo|reinstat\w*|restor\w*|resum\w*|came back"
    r"|moved back|went back|switched back|changed back|false|untrue|not true|mistaken\w*|incorrect\w*|wrong\w*"
    r"|rumou?rs?|joke|lie|myth|ignore|disregard|fake|contrary)\b"
)
_HEARSAY: Final = (
    r"\b(?:sa(?:y|ys|id)|tells?|told|hear[sd]?|reported\w*|think|thinks|thought|believ\w*|mention\w*|confirm\w*|insist\w*"
    r"|claim\w*|kn[eo]w\w*|learn\w*|understood|according|remember\w*|remind\w*|correct\w*|actual\w*|fact|indeed|really"
    r"|right|true|always|along|sure|certain\w*|decid\w*|agreed|announc\w*|wrote|writes|new|newly|latest|final\w*|discussed"
    r"|remain\w*|stay\w*|last i|last time|when i|as of)\b"
)
_NEGATIONS: Final = (
    r"\b(?:not?|never|nobody|nothing|none|nor|neither|without|hardly|den(?:y|ies|ied)|doubt\w*"
    r"|fail(?:s|ed|ing)? to)\b"
)
_ANY_MORE: Final = r"^(?:any ?more|any longer)\b"
_HOLDS: Final = r"^(?:(?:it )?(?:is|are)|it 's|works?|runs?|lives?|holds?|stands?|applies)\b"
_SENTENCE_END: Final = r"[.!?;](?= |$)"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a text is about: the words that name its key, those of its record, and the forms of what holds now."""

    names: frozenset[str]
    words: frozenset[str] = frozenset()
    current: frozenset[Canonical] = frozenset()


def denies(text: str | Reading, retired: Canonical, subject: Subject) -> bool:
    """Whether wherever a text has a value it says that this holds no more."""
    reading = text if isinstance(text, Reading) else Reading(text)
    places = _joined(places_of(reading, retired))
    if not places or len(places) > MAX_PLACES:
        return False
    now = _joined(place for form in subject.current if form != retired for place in places_of(reading, form))
    if any(start < end_now and start_now < end for start, end in places for start_now, end_now in now):
        return False
    return all(_is_denied(reading.base, place, places, now, subject) for place in places)


def _joined(places: Iterable[Place]) -> list[Place]:
    """The places in order, of those that overlap the shortest: a value in quotes is found with them and without."""
    joined: list[Place] = []
    for start, end in sorted(places):
        if not joined or start >= joined[-1][1]:
            joined.append((start, end))
        elif end - start < joined[-1][1] - joined[-1][0]:
            joined[-1] = start, end
    return joined


def _is_denied(
    base: str, place: Place, places: Sequence[Place], now: Sequence[Place], subject: Subject
) -> bool:
    before = _plain(base, (max(0, place[0] - WINDOW_CHARACTERS), place[0]), places, now, subject)
    after = _plain(base, (place[1], min(len(base), place[1] + WINDOW_CHARACTERS)), places, now, subject)
    left = re.split(_SENTENCE_END, before)[-1].lstrip()
    right = re.split(_SENTENCE_END, after)[0]
    if after.startswith(right) and after[len(right) :].startswith("?"):
        return False
    sentence = f"{left}{_R} {right}"
    kept, plans, undone = _compiled((_KEPT, _PLANS, _UNDONE))
    if plans.search(sentence) or kept.search(sentence):
        return False
    ended = _first(_AFTER, right)
    rest = right[ended.end() :] if ended is not None else right
    if undone.search(f"{before}{_R} {rest}{after[len(right) :]}"):
        return False
    return _is_told_past(left, right, ended)


def _is_told_past(left: str, right: str, ended: re.Match[str] | None) -> bool:
    """Whether the words on either side of a value deny it, or tell it as past."""
    negation, hearsay = _compiled((_NEGATIONS, _HEARSAY))
    negations = sum(1 for _ in negation.finditer(left))
    if ended is not None:
        return negations == 0 and hearsay.search(left) is None
    if _first((_HOLDS,), right) is not None:
        return False
    if negations == 1 and _first((_ANY_MORE,), right) is not None:
        return True
    if negations <= 1 and _first(_BEFORE, left) is not None:
        # A word for the past beside a negation is denied by it, and a negation alone is one.
        return negations == 0 or _first(_BEFORE[:2], left) is not None
    if negations:
        return False
    if _first(_TURNED_TO, left) is not None and right.startswith(("to " + _C, f"to the {_C}")):
        return True
    if _first(_TURNED, left) is not None or _first((_DONE,), f"{left}{_R} {right}") is not None:
        return True
    if hearsay.search(f"{left} {right}"):
        return False
    if _first(_WAS, left) is not None or _first(_AFTER_WAS, right) is not None:
        return True
    ended_since = _first((_ENDED,), f"{left}{_R} {right}")
    return ended_since is not None and (
        _first(_WAS_ENDED, left) is not None or _first(_AFTER_ENDED, right) is not None
    )


def _first(patterns: Sequence[str], text: str) -> re.Match[str] | None:
    for pattern in _compiled(tuple(patterns)):
        found = pattern.search(text)
        if found is not None:
            return found
    return None


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def _plain(base: str, part: Place, places: Sequence[Place], now: Sequence[Place], subject: Subject) -> str:
    """A part of a text as it is judged: lower case, words and marks apart, what matters as one character each."""
    told = []
    at = part[0]
    marked = [(*place, _R) for place in places] + [(*place, _C) for place in now]
    for start, end, mark in sorted(marked):
        if part[0] <= start and end <= part[1]:
            told += [*_tokens(base[at:start], subject), mark]
            at = end
    told += _tokens(base[at : part[1]], subject)
    return "".join(f"{token} " for token in told)


def _tokens(text: str, subject: Subject) -> list[str]:
    # A month is not a possibility.
    text = re.sub(r"(?<=[a-z\d] )May\b", "june", text)
    tokens: list[str] = []
    for match in re.finditer(r"[^\W_](?:[\w'-]*\w)?|[^\w\s]", text):
        word = match[0].lower()
        named = text_words(word.removesuffix("'s"))
        if named and named <= subject.names:
            tokens += [_K, "'s"] if word.endswith("'s") else [_K]
        elif named and named <= subject.words and not word.endswith("'s"):
            tokens.append(_S)
        elif word.endswith("n't"):
            tokens += [{"ca": "can", "wo": "will"}.get(word[:-3], word[:-3]), "not"]
        elif word == "cannot":
            tokens += ["can", "not"]
        elif word.endswith("'s") and word[:-2] in ("it", "he", "she", "that", "there", "what"):
            tokens += [word[:-2], "is"]
        else:
            tokens.append(word)
    return tokens
