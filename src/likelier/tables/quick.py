"""Vectorised parsing of the most common number layouts, with the same results as `read`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import mask_of, numbers_of, row_array, text_array, text_scalar
from likelier.tables.numerals import NOTHING, Numeral, read

# Digits with a prefix and a suffix; a column has few distinct pairs of these affixes.
_AFFIXED = "^(?P<before>[^0-9.,+-]*)(?P<digits>-?[0-9](?:[0-9.,]*[0-9])?)(?P<behind>[^0-9]*)$"
# A number has a digit near its start, after a sign and a currency at most.
_MAYBE = "^(?:[^0-9]{0,10}[0-9]|.?(?i:inf))"
_MAX_AFFIXES = 50
# Up to this many texts, parsing one by one is faster.
_FEW = 64
# Forms as in `Layout`, of numbers other than zero.
_FORMS = {
    "i": r"^-?[1-9][0-9]{0,2}$",
    "I": r"^-?[1-9][0-9]{3,}$",
    "?.": r"^-?[1-9][0-9]{0,2}\.[0-9]{3}$",
    "?,": r"^-?[1-9][0-9]{0,2},[0-9]{3}$",
    "g,.": r"^-?[1-9][0-9]{0,2}(?:,[0-9]{3})+\.[0-9]+$",
    ".": r"^-?(?:0\.0*[1-9][0-9]*|[1-9][0-9]*\.(?:[0-9]{1,2}|[0-9]{4,})|[1-9][0-9]{3,}\.[0-9]{3})$",
}


def quick_numbers(written: Sequence[str]) -> Iterator[tuple[Numeral, Array, pa.Array]]:
    """Yield the notation of common numbers, the rows that have it, and their signed digits.

    Texts that are certainly not numbers have the layout `NOTHING`; rows that are not yielded have
    to be parsed by `read`.
    """
    if len(written) <= _FEW:
        return
    texts = text_array(written)
    never = np.flatnonzero(~mask_of(pc.match_substring_regex(texts, _MAYBE)))
    yield Numeral(NOTHING, "", False, 0, ""), never, texts.take(row_array(never))
    found = pc.extract_regex(texts, _AFFIXED)
    rows = np.flatnonzero(mask_of(found.is_valid()))
    kept = found.take(row_array(rows))
    digits = kept.field("digits")
    joined = pc.binary_join_element_wise(
        kept.field("before"), kept.field("behind"), text_scalar("1")
    )
    affixes = joined.dictionary_encode()
    codes = numbers_of(affixes.indices)
    forms = {
        form: mask_of(pc.match_substring_regex(digits, pattern)) for form, pattern in _FORMS.items()
    }
    for code in np.argsort(-np.bincount(codes), kind="stable")[:_MAX_AFFIXES].tolist():
        number = read(affixes.dictionary[code].as_py())
        if number is None:
            number = Numeral(NOTHING, "", False, 0, "")
        elif number.layout.form != "i" or number.negative:
            continue
        for form, fitting in forms.items():
            here = np.flatnonzero(fitting & (codes == code))
            if len(here):
                layout = number.layout
                layout = layout if layout == NOTHING else layout._replace(form=form)
                yield number._replace(layout=layout), rows[here], digits.take(row_array(here))
