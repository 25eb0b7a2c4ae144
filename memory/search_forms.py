"""The irregular forms of English words, which no stemmer brings together: who asks for `buy` finds `bought`.

A query asks for all forms of its words. The index has them as they were written, so nothing of this is in a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Forms that are everyday words of another meaning as well are left out: `saw`, `felt`, `ground`, `rose`, `left`.
_FORMS: Final = """
arise arose arisen; awake awoke awoken; bear bore borne; beat beaten; become became; begin began begun; bend bent
bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken; breed bred; bring brought
build built; burn burnt; buy bought; catch caught; choose chose chosen; come came; creep crept; deal dealt
die died dying; dig dug; draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten
fall fell fallen; feed fed; fight fought; find found; flee fled; fly flew flown; forbid forbade forbidden
forget forgot forgotten; forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given
go went gone; grow grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt
know knew known; lay laid; lead led; lean leant; learn learnt; lend lent; lie lain lying; light lit; lose lost
make made; mean meant; meet met; pay paid; ride rode ridden; ring rang rung; run ran; see seen; seek sought
sell sold; send sent; shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung
sink sank sunk; sit sat; sleep slept; slide slid; speak spoke spoken; spell spelt; spend spent; spill spilt
spin spun; stand stood; steal stole stolen; stick stuck; sting stung; strike struck; swear swore sworn
sweep swept; swim swam swum; swing swung; take took taken; teach taught; tear tore torn; think thought
throw threw thrown; understand understood; wake woke woken; wear wore worn; weave wove woven; weep wept; win won
withdraw withdrew withdrawn; write wrote written
child children; man men; woman women; person people; foot feet; tooth teeth; goose geese; mouse mice; life lives
wife wives; knife knives; leaf leaves; half halves; shelf shelves; loaf loaves; thief thieves
good better best; bad worse worst; one 1 first; two 2 second twice; three 3 third; four 4 fourth; five 5 fifth
six 6 sixth; seven 7 seventh; eight 8 eighth; nine 9 ninth; ten 10 tenth; eleven 11 eleventh; twelve 12 twelfth
"""


# Words of five languages. What has another meaning more often than this one is left out: `last`, `over`, `right`.
_CHANGES: Final = """
now longer anymore actually instead correction correct moved switched changed updated replaced renamed postponed pushed
rescheduled delayed cancelled canceled upgraded migrated extended raised cut reduced increased became revised new newly
turns wrong mistaken stopped quit left dropped
jetzt nun mehr statt ge\u00e4ndert verschoben korrektur umgezogen gewechselt
d\u00e9sormais maintenant plus chang\u00e9 d\u00e9plac\u00e9 rectification
ahora ya cambi\u00f3 movido correcci\u00f3n
adesso ora pi\u00f9 cambiato spostato correzione
"""
CHANGES: Final = tuple(_CHANGES.split())
"""Words of whoever tells that something is not as it was. They change the order of what was found, and find nothing."""


def _groups() -> dict[str, tuple[str, ...]]:
    groups = {}
    for line in _FORMS.replace("\n", ";").split(";"):
        words = tuple(line.split())
        groups.update(dict.fromkeys(words, words))
    return groups


_GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(_groups())


_ENDINGS: Final = (("s", ""), ("es", ""), ("ies", "y"), ("ing", ""), ("ing", "e"))


def forms_of(word: str) -> tuple[str, ...]:
    """A word of a query with its irregular forms, itself first; alone if it has none."""
    lowered = word.lower()
    forms = _GROUPS.get(lowered)
    if forms is None and lowered.endswith(("s", "ing")):
        # What the stemmer makes one with its base has the forms of that: who asks who `leads` finds `led`.
        bases = (lowered.removesuffix(end) + left for end, left in _ENDINGS if lowered.endswith(end))
        forms = next((_GROUPS[base] for base in bases if base in _GROUPS), ())
    return (word, *(form for form in forms or () if form != lowered))
