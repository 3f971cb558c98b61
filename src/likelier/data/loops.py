"""Compiled parsing of numbers and libsvm lines from bytes.

Decimal numbers are rounded to the nearest float64, exactly as by ``float()``. A number of at most
19 significant digits is ``w * 10**q``. If ``w < 2**53`` and ``|q| <= 22``, both factors are exact
floats and a single rounding suffices. Otherwise ``w`` is multiplied by a 128-bit approximation of
``5**q``, whose upper bits decide the rounding (D. Lemire, "Number parsing at a gigabyte per
second", 2021; for why no fallback is needed, see N. Mushtak and D. Lemire, "Fast number parsing
without fallback", 2023). Numbers with more digits lie between two neighbouring ``w``; if these
round differently, the caller must use ``float()``.
"""

import numpy as np

from likelier.jit import njit

# Status of a parsed line or number.
OK = 0
NO_LABEL = 1
BAD_LABEL = 2
MANY_LABELS = 3
BAD_INDEX = 4
BAD_VALUE = 5
LARGE_INDEX = 6
UNEXPECTED_LABEL = 7
SMALL_INDEX = 8

_SMALLEST_POWER = -342  # below it, 19 digits always round to zero
_LARGEST_POWER = 308  # above it, one digit is already infinite
_LARGEST_INDEX = 2**31 - 2

_TAB, _NEWLINE, _RETURN, _SPACE = 9, 10, 13, 32
_HASH, _PLUS, _COMMA, _MINUS, _POINT, _COLON = 35, 43, 44, 45, 46, 58
_ZERO, _NINE, _UPPER_E, _LOWER_E, _LOWER_Q = 48, 57, 69, 101, 113

_U0, _U1, _U3, _U9, _U10 = (np.uint64(n) for n in (0, 1, 3, 9, 10))
_U32, _U52, _U63 = (np.uint64(n) for n in (32, 52, 63))
_LOW_HALF = np.uint64(0xFFFFFFFF)
_LAST_9_BITS = np.uint64(0x1FF)
_HIDDEN_BIT = np.uint64(1 << 52)
_EXACT_LIMIT = np.uint64(1 << 53)
_SIGN_BIT = np.uint64(1 << 63)
_INFINITY = np.uint64(0x7FF << 52)
_DIGITS_LIMIT = np.uint64(10**18)  # below it one more digit still fits 19 digits


def _powers_of_five():
    """Upper 128 bits of ``5**q``, normalised, as pairs (high, low) of uint64 for each q."""
    table = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(_SMALLEST_POWER, _LARGEST_POWER + 1)):
        power = 5 ** abs(q)
        bits = power.bit_length()
        if q < 0:  # a reciprocal, rounded up while 5**-q fits 64 bits
            value = (1 << (bits + 127)) // power + (q >= -27)
        elif bits > 128:
            value = power >> (bits - 128)
        else:
            value = power << (128 - bits)
        table[row, 0] = value >> 64
        table[row, 1] = value & 0xFFFFFFFFFFFFFFFF
    return table


_POWERS_OF_FIVE = _powers_of_five()
_POWERS_OF_TEN = 10.0 ** np.arange(23)

# Helpers are compiled into their callers, without a Python wrapper or cache file.
_helper = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_helper
def _multiply(a, b):
    """Return the high and the low 64 bits of the product of two uint64."""
    a_low, a_high = a & _LOW_HALF, a >> _U32
    b_low, b_high = b & _LOW_HALF, b >> _U32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _U32)
    other = a_low * b_high + (middle & _LOW_HALF)
    high = a_high * b_high + (middle >> _U32) + (other >> _U32)
    return high, (other << _U32) | (low & _LOW_HALF)


@_helper
def _leading_zeros(w):
    """Count the zero bits above the highest one of ``w > 0``."""
    count = 0
    step = 32
    while step:
        if w >> np.uint64(64 - step) == _U0:
            w <<= np.uint64(step)
            count += step
        step >>= 1
    return count


@_helper
def _nearest_bits(w, q):
    """Bits of the float64 nearest to ``w * 10**q``, for an integer ``w`` of up to 19 digits."""
    if w == _U0 or q < _SMALLEST_POWER:
        return _U0
    if q > _LARGEST_POWER:
        return _INFINITY
    zeros = _leading_zeros(w)
    w <<= np.uint64(zeros)
    high, low = _multiply(w, _POWERS_OF_FIVE[q - _SMALLEST_POWER, 0])
    if high & _LAST_9_BITS == _LAST_9_BITS:  # a carry from the lower half could reach the result
        carry, _ = _multiply(w, _POWERS_OF_FIVE[q - _SMALLEST_POWER, 1])
        low += carry
        if carry > low:
            high += _U1
    top = high >> _U63
    mantissa = high >> (top + _U9)  # 54 bits: the result and one bit to round by
    exponent = ((217706 * q) >> 16) + 63 + np.int64(top) - zeros + 1023  # 217706 / 2**16 ~ log2 10
    if exponent <= 0:  # subnormal
        if exponent <= -63:
            return _U0
        mantissa >>= np.uint64(1 - exponent)
        # Rounding up into the hidden bit yields the smallest normal number, as it should.
        return (mantissa + (mantissa & _U1)) >> _U1
    between = low <= _U1 and mantissa & _U3 == _U1 and mantissa << (top + _U9) == high
    if between and -4 <= q <= 23:  # exactly between two floats: take the even one
        mantissa &= ~_U1
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    if mantissa >= _EXACT_LIMIT:
        mantissa = _HIDDEN_BIT
        exponent += 1
    if exponent >= 2047:
        return _INFINITY
    return (mantissa & ~_HIDDEN_BIT) | (np.uint64(exponent) << _U52)


@_helper
def _is_digit(byte):
    return _ZERO <= byte <= _NINE


@_helper
def _is_blank(byte):
    return byte == _SPACE or byte == _TAB or byte == _RETURN


@_helper
def _ends_token(text, at):
    return at >= len(text) or _is_blank(text[at]) or text[at] == _NEWLINE


@_helper
def _read_exponent(text, at):
    """Read an exponent such as ``e-5`` at ``at``; return its end (-1: malformed) and value."""
    at += 1
    negative = at < len(text) and text[at] == _MINUS
    if at < len(text) and (text[at] == _MINUS or text[at] == _PLUS):
        at += 1
    if at >= len(text) or not _is_digit(text[at]):
        return -1, 0
    value = 0
    while at < len(text) and _is_digit(text[at]):
        if value < 100_000_000:
            value = 10 * value + (text[at] - _ZERO)
        at += 1
    return at, -value if negative else value


@_helper
def read_number(text, at, values, bits, slot):
    """Read the decimal number at ``text[at]`` into ``values[slot]``.

    ``bits`` is a uint64 view of ``values``. Returns the end of the number (-1: none) and whether
    the value is exact; if not, the caller has to parse the same bytes with ``float()``.
    """
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    w, q = _U0, 0
    n_digits, after_point, dropped = 0, 0, False
    while at < len(text):
        byte = text[at]
        if _is_digit(byte):
            n_digits += 1
            q -= after_point
            if w < _DIGITS_LIMIT:
                w = w * _U10 + np.uint64(byte - _ZERO)
            else:  # beyond 19 digits: keep the magnitude, flag dropped digits
                q += 1
                dropped |= byte != _ZERO
        elif byte == _POINT and after_point == 0:
            after_point = 1
        else:
            break
        at += 1
    if n_digits == 0:
        return -1, True
    if at < len(text) and (text[at] == _LOWER_E or text[at] == _UPPER_E):
        at, exponent = _read_exponent(text, at)
        if at < 0:
            return -1, True
        q += exponent
    exact = True
    if w < _EXACT_LIMIT and -22 <= q <= 22:
        value = np.float64(w)
        value = value * _POWERS_OF_TEN[q] if q >= 0 else value / _POWERS_OF_TEN[-q]
        values[slot] = -value if negative else value
    else:
        nearest = _U0
        for above in range(2 if dropped else 1):  # a single call site, inlined once
            other = nearest
            nearest = _nearest_bits(w + np.uint64(above), q)
            exact = above == 0 or nearest == other
        bits[slot] = nearest | _SIGN_BIT if negative else nearest
    return at, exact


@_helper
def _read_index(text, at):
    """Read a column number and its colon at ``at``; return the end and the number.

    An end of -1 means that there is none, -2 that the number is too large.
    """
    value, start = 0, at
    while at < len(text) and _is_digit(text[at]):
        value = 10 * value + (text[at] - _ZERO)
        if value > _LARGEST_INDEX:
            return -2, 0
        at += 1
    if at == start or at >= len(text) or text[at] != _COLON:
        return -1, 0
    return at + 1, value


@_helper
def _index_fault(end, label_expected):
    """Return the status for a missing or invalid column number of `_read_index`."""
    if end == -2:
        return LARGE_INDEX
    if end >= 0:
        return SMALL_INDEX
    return UNEXPECTED_LABEL if label_expected else BAD_INDEX


@_helper
def _is_query_id(text, at):
    """Whether ``qid:`` starts at ``at``: the query id of ranking files, which is ignored."""
    return (
        at + 3 < len(text)
        and text[at] == _LOWER_Q
        and text[at + 1] == 105
        and text[at + 2] == 100
        and text[at + 3] == _COLON
    )


@_helper
def _skip_token(text, at):
    while not _ends_token(text, at):
        at += 1
    return at


@_helper
def _skip_line(text, at):
    while at < len(text) and text[at] != _NEWLINE:
        at += 1
    return at


@_helper
def _read_label(text, at, labels, bits, slot):
    """Read the label at ``at``; return its end, whether it is exact, and a status."""
    end, exact = read_number(text, at, labels, bits, slot)
    if end >= 0 and _ends_token(text, end):
        return end, exact, BAD_LABEL if exact and np.isinf(labels[slot]) else OK
    if end >= 0 and text[end] == _COLON:
        return at, True, NO_LABEL
    if end >= 0 and text[end] == _COMMA:
        return at, True, MANY_LABELS
    return at, True, BAD_LABEL


@njit(cache=True, nogil=True, error_model="numpy")
def parse_rows(text, lowest, labels, indptr, columns, values, hard):
    """Parse whole lines of the libsvm format: ``label column:value ... # comment``.

    Parameters
    ----------
    text : uint8 array
        Whole lines.
    lowest : int
        The lowest column number allowed.
    labels, values : float64 arrays
        Output: the labels of the rows, and their entries. If ``labels`` is empty, lines have no
        label.
    indptr, columns : int64 and int32 arrays
        Output: the start of each row, and the raw columns of the entries.
    hard : int64 array of shape (n, 3)
        Output: (slot, begin, end) of each number to be parsed again with ``float()``; a label has
        slot ``-1 - row``.

    Returns
    -------
    n_rows, n_hard, ordered, status, at
        Numbers of rows and of hard numbers, whether columns increase in every row, and the status
        (`OK` or an error) with its byte position.
    """
    label_bits, value_bits = labels.view(np.uint64), values.view(np.uint64)
    labelled = len(labels) > 0
    at = row = count = n_hard = np.int64(0)  # a literal 0 would compile a second specialisation
    ordered = True
    indptr[0] = 0
    while at < len(text):
        if _is_blank(text[at]) or text[at] == _NEWLINE:
            at += 1
            continue
        if text[at] == _HASH:
            at = _skip_line(text, at)
            continue
        if labelled:
            end, exact, status = _read_label(text, at, labels, label_bits, row)
            if status != OK:
                return row, n_hard, ordered, status, at
            if not exact:
                hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = -1 - row, at, end
                n_hard += 1
            at = end
        last = -1
        while at < len(text) and text[at] != _NEWLINE:
            if _is_blank(text[at]):
                at += 1
                continue
            if text[at] == _HASH:
                at = _skip_line(text, at)
                break
            if _is_query_id(text, at):
                at = _skip_token(text, at)
                continue
            start, column = _read_index(text, at)
            if start < 0 or column < lowest:
                status = _index_fault(start, not labelled and last < 0)
                return row, n_hard, ordered, status, at
            if _ends_token(text, start):
                return row, n_hard, ordered, BAD_VALUE, at
            end, exact = read_number(text, start, values, value_bits, count)
            if end < 0 or not _ends_token(text, end):
                return row, n_hard, ordered, BAD_VALUE, at
            if exact and np.isinf(values[count]):
                return row, n_hard, ordered, BAD_VALUE, at
            if not exact:
                hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = count, start, end
                n_hard += 1
            ordered &= column > last
            last = column
            columns[count] = column
            count += 1
            at = end
        row += 1
        indptr[row] = count
    return row, n_hard, ordered, OK, at


@njit(cache=True, nogil=True, error_model="numpy")
def parse_numbers(text, starts, values, exact):
    """Parse the numbers at ``starts``; return how many could be parsed.

    For tests, and for callers that know the positions of their numbers.
    """
    bits = values.view(np.uint64)
    for slot in range(len(starts)):
        end, exact[slot] = read_number(text, starts[slot], values, bits, slot)
        if end < 0 or not _ends_token(text, end):
            return slot
    return len(starts)
