"""Amounts with a unit: durations, sizes, rates, lengths, weights, temperatures, percentages, money.

A unit is known by names whose case does not matter and by symbols whose case does: mW and MW, Mb and MB are
not one unit, so neither is guessed from mw or mb/s, and of ms, Ms and mS the first alone is a millisecond. A single
letter never depends on case: 4A may as well be a flat, and 4a the same one. What is not known here is no amount.
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
    ("second", 1, -9, "nanosecond nanoseconds", "ns"),
    ("second", 1, -6, "microsecond microseconds", "μs us"),
    ("second", 1, -3, "msec msecs millisecond milliseconds", "ms"),
    (
        "second",
        1,
        0,
        "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos 秒 秒間",
        "",
    ),
    ("second", 60, 0, "min mins minute minutes minuten minuto minutos 分 分間 分钟 分鐘", ""),
    ("second", 3600, 0, "h hr hrs hour hours stunde stunden heure heures hora horas 時間 小时 小時", ""),
    ("second", 86400, 0, "d day days tag tage tagen jour jours día días dia dias 日間 天", ""),
    ("second", 604800, 0, "w wk wks week weeks woche wochen semaine semaines semana semanas 週間", ""),
    ("month", 1, 0, "mo mos month months monat monate monaten mois mes meses か月 ヶ月 个月 個月", ""),
    ("month", 12, 0, "y yr yrs year years jahr jahre jahren année années año años ano anos 年間", ""),
    ("byte", 1, 0, "byte bytes", ""),
    ("bit", 1, 0, "bit bits", ""),
    ("metre", 1, 0, "metre metres meter meters", ""),
    ("metre", 1, -3, "millimetre millimetres millimeter millimeters", "mm"),
    ("metre", 1, -2, "cm centimetre centimetres centimeter centimeters", ""),
    ("metre", 1, 3, "km kilometre kilometres kilometer kilometers", ""),
    ("inch", 1, 0, "inch inches", ""),
    ("inch", 12, 0, "ft foot feet", ""),
    ("inch", 36, 0, "yd yard yards", ""),
    ("inch", 63360, 0, "mile miles", "mi"),
    ("metre an hour", 1, 3, "km/h kmh kph kmph kilometre/h kilometres/h kilometer/h kilometers/h", ""),
    ("mile an hour", 1, 0, "mph mile/h miles/h", ""),
    ("metre a second", 1, 0, "m/s metre/s metres/s meter/s meters/s", ""),
    ("gram", 1, -3, "milligram milligrams", "mg"),
    ("gram", 1, 0, "g gram grams gramme grammes", ""),
    ("gram", 1, 3, "kg kilo kilos kilogram kilograms", ""),
    ("gram", 1, 6, "tonne tonnes", "Mg"),
    ("ounce", 1, 0, "oz ounce ounces", ""),
    ("ounce", 16, 0, "lb lbs", ""),
    ("litre", 1, -3, "millilitre millilitres milliliter milliliters", "ml mL"),
    ("litre", 1, -2, "cl centilitre centilitres", ""),
    ("litre", 1, 0, "l litre litres liter liters", ""),
    ("hertz", 1, -3, "", "mHz"),
    ("hertz", 1, 0, "hz hertz", ""),
    ("hertz", 1, 3, "khz kilohertz", ""),
    ("hertz", 1, 6, "mhz megahertz", ""),
    ("hertz", 1, 9, "ghz gigahertz", ""),
    ("watt", 1, -3, "milliwatt milliwatts", "mW"),
    ("watt", 1, 0, "watt watts", ""),
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
    ("ampere", 1, -3, "milliamp milliamps", "mA ma"),
    ("ampere", 1, 6, "", "MA"),
    ("ampere hour", 1, -3, "", "mAh mah"),
    ("ampere hour", 1, 0, "ah", ""),
    ("celsius", 1, 0, "°c celsius degrees_celsius degree_celsius", ""),
    ("fahrenheit", 1, 0, "°f fahrenheit degrees_fahrenheit degree_fahrenheit", ""),
    ("degree", 1, 0, "° deg degree degrees", ""),
    ("percent", 1, 0, "% percent per_cent pct", ""),
    ("percent", 1, -1, "‰", ""),
    ("percentage point", 1, 0, "pp percentage_point percentage_points", ""),
    ("percentage point", 1, -2, "basis_point basis_points", ""),
    ("pixel", 1, 0, "px pixel pixels", ""),
    ("times", 1, 0, "x × times", ""),
)
_PREFIXES: Final = (
    ("k", 3, "kilo"),
    ("m", 6, "mega"),
    ("g", 9, "giga"),
    ("t", 12, "tera"),
    ("p", 15, "peta"),
)

# Names of one currency. Dollar, yen and pound signs stand for the currency they stand for most often; a
# currency that names its country (CA$, 'Canadian dollars') is never one of these.
_CURRENCIES: Final = {
    "usd": "$ us$ usd dollar dollars us_dollar us_dollars",
    "eur": "€ eur euro euros",
    "gbp": "£ gbp pound_sterling pounds_sterling",
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
    found = read_numeral(text) or read_number_words(text)
    if found is None:
        return None
    numeral, rest = found
    word, _, after = rest.lstrip(" ").partition(" ")
    power = MAGNITUDES.get(fold_case(word))
    return found if power is None else (scaled(numeral, power), after)


@cache
def currency_signs() -> frozenset[str]:
    """The first characters of currency names that are not letters."""
    return frozenset(name[0] for name in _currencies() if not name[0].isalpha())


@cache
def currency_names() -> frozenset[str]:
    """The names of currencies, and the words of those that have several."""
    return frozenset(word for name in _currencies() for word in (name.replace("_", " "), *name.split("_")))


@cache
def unit_words() -> frozenset[str]:
    """The words that names of units have, and the magnitudes."""
    symbols, names = _units()
    return frozenset(
        word for name in (*symbols, *names, *MAGNITUDES, "m") for word in name.replace("/", "_").split("_")
    )


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
    if total is None or (parts > 1 and text.startswith("-")):
        return None
    return ("percent" if total[0] == "percent" else "quantity", f"{exact_form(*total[1:])} {total[0]}")


def _unit_name(after: str, compound: bool) -> tuple[str, str]:
    """The name of the unit right after a number, and what follows it: another part, as in 1 h 30 min."""
    match = _unit_pattern().match(after)
    if match is None:
        return "", ""
    name, rest = match["name"], match["joined"] or match["next"] or ""
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
    before = _currency_before_pattern().match(fold_case(text))
    currency = None
    if before is not None:
        currency = _currency(before["name"])
        found = read_numeral((before["sign"] or "") + before["amount"])
    else:
        found = read_number(text)
    if found is None:
        return None
    numeral, rest = found
    after = _currency_after_pattern().fullmatch(fold_case(rest))
    if after is None:
        return None
    magnitude = after["magnitude"]
    power = MAGNITUDES.get(magnitude, _MONEY_MAGNITUDES.get(magnitude)) if magnitude else 0
    if power is None or (currency is None and not after["name"]):
        return None
    if after["name"]:
        if currency not in (None, _currency(after["name"])):
            return None
        currency = _currency(after["name"])
    if numeral.exponent == -3 and not power and currency not in ("btc", "eth"):
        # Money has no thousandths: 1.200 is the continental twelve hundred.
        power = 3
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


def _currency(name: str) -> str:
    return _currencies()[name.replace(" ", "_")]


def _unit(name: str) -> Unit | None:
    symbols, names = _units()
    unit = symbols.get(name) or names.get(fold_case(name).replace(" ", "_"))
    if unit is None and " per " in name:
        unit = names.get(fold_case(name).replace(" per second", "/s").replace(" per hour", "/h"))
    return unit


@cache
def _units() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Units by symbols whose case matters, and by names whose case does not (a space written as _)."""
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
        symbols[f"{upper}ib"] = Unit("bit", 1024**place, 0)
        symbols.update(dict.fromkeys((f"{upper}B", f"{letter}b", f"{letter}B"), size))
        symbols[f"{upper}b"] = bits
        rate = Unit("bit a second", 1, power)
        names.update(dict.fromkeys((f"{letter}bit/s", f"{letter}bits/s"), rate))
        names.update(dict.fromkeys((f"{word}bit/s", f"{word}bits/s"), rate))
        symbols.update(dict.fromkeys((f"{upper}bps", f"{letter}bps", f"{upper}b/s", f"{upper}BPS"), rate))
        symbols.update(
            dict.fromkeys((f"{upper}B/s", f"{letter}B/s", f"{upper}Bps"), Unit("byte a second", 1, power))
        )
    return symbols, names


@cache
def _currencies() -> dict[str, str]:
    return {name: code for code, names in _CURRENCIES.items() for name in names.split()}


@cache
def _currency_names() -> str:
    names = sorted(_currencies(), key=len, reverse=True)
    return "|".join(re.escape(name.replace("_", " ")) for name in names)


@cache
def _unit_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?:(?P<hyphen>-)| )?(?P<name>[^\d,;-]+?)(?:(?:,? and |, )(?P<joined>.+)| ?(?P<next>\d.*))?$"
    )


@cache
def _currency_before_pattern() -> re.Pattern[str]:
    return re.compile(rf"(?P<sign>[+-])?(?P<name>{_currency_names()}) ?(?P<amount>[+-]?\.?\d.*)$")


@cache
def _currency_after_pattern() -> re.Pattern[str]:
    return re.compile(rf" ?(?P<magnitude>[a-z]*?) ?(?P<name>{_currency_names()})?")


@cache
def _iso_duration_pattern() -> re.Pattern[str]:
    return re.compile(r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?")
