"""Amounts with a unit: durations, sizes, rates, lengths, weights, temperatures, percentages, money.

A unit is known by names whose case does not matter and by symbols whose case does: mW and MW, Mb and MB are
not one unit, so neither is guessed from mw or mb/s. What is not known here is no amount.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from memory.canon_numbers import MAGNITUDES, Numeral, exact_form, read_number_words, read_numeral, scaled
from memory.canon_text import fold_case


class Unit(NamedTuple):
    """A dimension, and how many of its base unit this one is: factor times ten to the power exponent."""

    dimension: str
    factor: int
    exponent: int


# dimension, factor, power of ten, names without case, symbols as written
_UNITS: Final = (
    ("second", 1, -9, "ns nanosecond nanoseconds", ""),
    ("second", 1, -6, "μs us microsecond microseconds", ""),
    ("second", 1, -3, "ms msec msecs millisecond milliseconds", ""),
    ("second", 1, 0, "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos 秒 秒間", ""),
    ("second", 60, 0, "min mins minute minutes minuten minuto minutos 分 分間 分钟 分鐘", ""),
    ("second", 3600, 0, "h hr hrs hour hours stunde stunden heure heures hora horas 時間 小时 小時", ""),
    ("second", 86400, 0, "d day days tag tage tagen jour jours día días dia dias 日間 天", ""),
    ("second", 604800, 0, "w wk wks week weeks woche wochen semaine semaines semana semanas 週間", ""),
    ("month", 1, 0, "mo mos month months monat monate monaten mois mes meses か月 ヶ月 个月 個月", ""),
    ("month", 12, 0, "y yr yrs year years jahr jahre jahren année années año años ano anos 年間", ""),
    ("byte", 1, 0, "byte bytes", "B"),
    ("bit", 1, 0, "bit bits", ""),
    ("metre", 1, 0, "metre metres meter meters", ""),
    ("metre", 1, -3, "mm millimetre millimetres millimeter millimeters", ""),
    ("metre", 1, -2, "cm centimetre centimetres centimeter centimeters", ""),
    ("metre", 1, 3, "km kilometre kilometres kilometer kilometers", ""),
    ("inch", 1, 0, "inch inches", ""),
    ("inch", 12, 0, "ft foot feet", ""),
    ("inch", 36, 0, "yd yard yards", ""),
    ("inch", 63360, 0, "mi mile miles", ""),
    ("metre an hour", 1, 3, "km/h kmh kph kmph", ""),
    ("mile an hour", 1, 0, "mph", ""),
    ("metre a second", 1, 0, "m/s", ""),
    ("gram", 1, -3, "milligram milligrams", "mg"),
    ("gram", 1, 0, "g gram grams gramme grammes", ""),
    ("gram", 1, 3, "kg kilo kilos kilogram kilograms", ""),
    ("gram", 1, 6, "tonne tonnes", ""),
    ("ounce", 1, 0, "oz ounce ounces", ""),
    ("ounce", 16, 0, "lb lbs", ""),
    ("litre", 1, -3, "ml millilitre millilitres milliliter milliliters", ""),
    ("litre", 1, -2, "cl centilitre centilitres", ""),
    ("litre", 1, 0, "l litre litres liter liters", ""),
    ("hertz", 1, 0, "hz hertz", ""),
    ("hertz", 1, 3, "khz kilohertz", ""),
    ("hertz", 1, 6, "megahertz mhz", "MHz"),
    ("hertz", 1, 9, "ghz gigahertz", ""),
    ("watt", 1, -3, "milliwatt milliwatts", "mW"),
    ("watt", 1, 0, "watt watts", "W"),
    ("watt", 1, 3, "kw kilowatt kilowatts", ""),
    ("watt", 1, 6, "megawatt megawatts", "MW"),
    ("watt", 1, 9, "gw gigawatt gigawatts", ""),
    ("watt hour", 1, 0, "wh", ""),
    ("watt hour", 1, 3, "kwh", ""),
    ("watt hour", 1, 6, "", "MWh"),
    ("volt", 1, 0, "v volt volts", ""),
    ("volt", 1, -3, "millivolt millivolts", "mV"),
    ("volt", 1, 3, "kv kilovolt kilovolts", ""),
    ("ampere", 1, 0, "a amp amps ampere amperes", ""),
    ("ampere", 1, -3, "ma milliamp milliamps", ""),
    ("ampere hour", 1, -3, "mah", ""),
    ("ampere hour", 1, 0, "ah", ""),
    ("celsius", 1, 0, "°c celsius degrees°celsius degree°celsius", ""),
    ("fahrenheit", 1, 0, "°f fahrenheit degrees°fahrenheit degree°fahrenheit", ""),
    ("degree", 1, 0, "° deg degree degrees", ""),
    ("percent", 1, 0, "% percent per°cent pct", ""),
    ("percent", 1, -1, "‰", ""),
    ("percentage point", 1, 0, "pp percentage°point percentage°points", ""),
    ("percentage point", 1, -2, "basis°point basis°points", ""),
    ("pixel", 1, 0, "px pixel pixels", ""),
    ("times", 1, 0, "x × times", ""),
)
_PREFIXES: Final = (("k", 3, "kilo"), ("m", 6, "mega"), ("g", 9, "giga"), ("t", 12, "tera"), ("p", 15, "peta"))

# Names of one currency. Dollar, yen and pound signs stand for the currency they stand for most often; a
# currency that names its country (CA$, 'Canadian dollars') is never one of these.
_CURRENCIES: Final = {
    "usd": "$ us$ usd dollar dollars us°dollar us°dollars",
    "eur": "€ eur euro euros",
    "gbp": "£ gbp pound°sterling pounds°sterling",
    "jpy": "¥ jpy jp¥ yen 円",
    "cny": "cny rmb cn¥ yuan 元 人民币",
    "inr": "₹ inr rupee rupees",
    "krw": "₩ krw won 원",
    "chf": "chf sfr",
    "brl": "r$ brl",
    "cad": "ca$ c$ cad",
    "aud": "a$ au$ aud",
    "nzd": "nz$ nzd",
    "hkd": "hk$ hkd",
    "sgd": "s$ sgd",
    "twd": "nt$ twd",
    "mxn": "mx$ mxn",
    "rub": "₽ rub",
    "try": "₺ try",
    "uah": "₴ uah",
    "ils": "₪ ils",
    "vnd": "₫ vnd",
    "pln": "zł pln",
    "czk": "kč czk",
    "sek": "sek",
    "nok": "nok",
    "dkk": "dkk",
    "huf": "huf",
    "zar": "zar",
    "btc": "₿ btc bitcoin",
    "eth": "eth",
}
_MONEY_MAGNITUDES: Final = {"k": 3, "m": 6, "mn": 6, "mio": 6, "b": 9, "bn": 9}
_LONG_NAME: Final = 3


def read_quantity(text: str) -> tuple[str, str] | None:
    """Kind and form of an amount with a unit, from a text that is `normal`; None if it is not one."""
    return _money(text) or _measure(text) or _iso_duration(text)


def read_number(text: str) -> tuple[Numeral, str] | None:
    """The number a `normal` text begins with, in digits or in words, and what follows it."""
    lower = fold_case(text)
    found = read_numeral(lower) or read_number_words(lower)
    if found is None:
        return None
    numeral, rest = found
    word, _, after = rest.lstrip().partition(" ")
    if word in MAGNITUDES:
        numeral, rest = scaled(numeral, MAGNITUDES[word]), after
        return numeral, text[len(text) - len(rest) :]
    return numeral, text[len(text) - len(rest) :] if rest else ""


def currency_signs() -> frozenset[str]:
    """The first characters of currency names that are not letters."""
    return frozenset(name[0] for name in _currencies() if not name[0].isalpha())


def currency_codes() -> frozenset[str]:
    """The letters a currency may begin an amount with: usd in USD 5."""
    return frozenset(name for name in _currencies() if name[0].isalpha())


def _measure(text: str) -> tuple[str, str] | None:
    total: tuple[str, int, int] | None = None
    parts = 0
    rest = text
    while rest:
        found = read_number(rest)
        if found is None:
            return None
        numeral, after = found
        name, rest = _unit_name(after, compound=parts > 0)
        unit = _unit(name)
        if unit is None:
            return None
        amount, exponent = numeral.amount * unit.factor, numeral.exponent + unit.exponent
        if total is None:
            total = (unit.dimension, amount, exponent)
        elif unit.dimension != total[0] or unit.dimension not in ("second", "month", "inch") or amount < 0:
            return None
        else:
            total = (unit.dimension, *_sum(total[1], total[2], amount, exponent))
        parts += 1
    if total is None:
        return None
    return ("percent" if total[0] == "percent" else "quantity", f"{exact_form(*total[1:])} {total[0]}")


def _unit_name(after: str, compound: bool) -> tuple[str, str]:
    """The name of the unit right after a number, and what follows it: another part, as in 1 h 30 min."""
    match = _unit_pattern().match(after)
    if match is None:
        return "", ""
    name, rest = match["name"].rstrip(), match["rest"]
    if match["hyphen"] and len(name) < _LONG_NAME:
        return "", ""
    # m alone is minutes or metres; between the parts of a duration it is minutes.
    if name in ("m", "M") and (compound or rest):
        name = "min"
    return name, rest


def _sum(left: int, left_exponent: int, right: int, right_exponent: int) -> tuple[int, int]:
    exponent = min(left_exponent, right_exponent)
    return left * 10 ** (left_exponent - exponent) + right * 10 ** (right_exponent - exponent), exponent


def _money(text: str) -> tuple[str, str] | None:
    match = _money_pattern().match(fold_case(text))
    if match is None:
        return None
    before, after = (match["before"] or "").strip(), (match["after"] or "").strip()
    currency = _currencies().get((before or after).replace(" ", "°"))
    if currency is None or (before and after and _currencies().get(after.replace(" ", "°")) != currency):
        return None
    found = read_numeral((match["sign"] or "") + match["amount"].strip())
    if found is None:
        return None
    numeral, rest = found
    magnitude = rest.strip()
    if magnitude and magnitude not in MAGNITUDES and magnitude not in _MONEY_MAGNITUDES:
        return None
    power = MAGNITUDES.get(magnitude) or _MONEY_MAGNITUDES.get(magnitude) or 0
    return "money", f"{exact_form(numeral.amount, numeral.exponent + power)} {currency}"


def _iso_duration(text: str) -> tuple[str, str] | None:
    """ISO 8601 durations without months and years: P90D, PT1H30M."""
    match = _iso_duration_pattern().fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    seconds = 0
    for digits, size in zip(match.groups(), (604800, 86400, 3600, 60, 1), strict=True):
        seconds += int(digits or 0) * size
    return "quantity", f"{exact_form(seconds, 0)} second"


def _unit(name: str) -> Unit | None:
    symbols, names = _units()
    return symbols.get(name) or names.get(fold_case(name).replace(" ", "°"))


@cache
def _units() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Units by symbols whose case matters, and by names whose case does not (a space written as °)."""
    symbols: dict[str, Unit] = {}
    names: dict[str, Unit] = {}
    for dimension, factor, exponent, without_case, as_written in _UNITS:
        unit = Unit(dimension, factor, exponent)
        names.update(dict.fromkeys(without_case.split(), unit))
        symbols.update(dict.fromkeys(as_written.split(), unit))
    for place, (letter, power, word) in enumerate(_PREFIXES, start=1):
        upper = letter.upper()
        size, bits = Unit("byte", 1, power), Unit("bit", 1, power)
        names.update(dict.fromkeys((f"{word}byte", f"{word}bytes"), size))
        names.update(dict.fromkeys((f"{word}bit", f"{word}bits", f"{letter}bit", f"{letter}bits"), bits))
        names[f"{letter}ib"] = Unit("byte", 1024**place, 0)
        symbols.update(dict.fromkeys((f"{upper}B", f"{letter}b", f"{letter}B"), size))
        symbols[f"{upper}b"] = bits
        rate = Unit("bit a second", 1, power)
        names.update(dict.fromkeys((f"{letter}bit/s", f"{letter}bits/s"), rate))
        symbols.update(dict.fromkeys((f"{upper}bps", f"{letter}bps", f"{upper}b/s", f"{upper}BPS"), rate))
        symbols.update(dict.fromkeys((f"{upper}B/s", f"{letter}B/s", f"{upper}Bps"), Unit("byte a second", 1, power)))
    return symbols, names


@cache
def _currencies() -> dict[str, str]:
    return {name: code for code, names in _CURRENCIES.items() for name in names.split()}


@cache
def _unit_pattern() -> re.Pattern[str]:
    return re.compile(r"(?:(?P<hyphen>-)| )?(?P<name>[^\W\d_]?[^\d,;-]*?)(?P<rest>(?:,? and |, ?| )?(?=\d).*)?$", re.DOTALL)


@cache
def _money_pattern() -> re.Pattern[str]:
    name = "|".join(re.escape(name).replace("°", " ") for name in sorted(_currencies(), key=len, reverse=True))
    return re.compile(
        rf"(?:(?P<sign>[+-])? ?(?P<before>{name}) ?)?(?P<amount>[+-]?[\d.][\d.,' _]*(?:[a-z]+(?: |$))??)"
        rf" ?(?P<after>{name})?$"
    )


@cache
def _iso_duration_pattern() -> re.Pattern[str]:
    return re.compile(r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?")
