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


def _groups() -> dict[str, tuple[str, ...]]:
    groups = {}
    for line in _FORMS.replace("\n", ";").split(";"):
        words = tuple(line.split())
        groups.update(dict.fromkeys(words, words))
    return groups


_GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(_groups())


def forms_of(word: str) -> tuple[str, ...]:
    """A word of a query with its irregular forms, itself first; alone if it has none."""
    lowered = word.lower()
    return (word, *(form for form in _GROUPS.get(lowered, ()) if form != lowered))
