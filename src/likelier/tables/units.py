"""Units of measurement: normalised spelling, and conversion within a quantity."""

from __future__ import annotations

# Units of one quantity in a column are converted; units of different quantities are rejected.
_TABLE = {
    "length": "mm 1e-3, cm 1e-2, dm 0.1, m 1, meter 1, metre 1, km 1e3, in 0.0254, inch 0.0254, "
    "inche 0.0254, ft 0.3048, foot 0.3048, feet 0.3048, yd 0.9144, yard 0.9144, mi 1609.344, "
    "mile 1609.344",
    "area": "m² 1, m2 1, sqm 1, sq m 1, ha 1e4, km² 1e6, km2 1e6, sqft 0.09290304, "
    "sq ft 0.09290304, sq. ft 0.09290304, acre 4046.8564224",
    "mass": "mg 1e-6, g 1e-3, gram 1e-3, kg 1, kilogram 1, t 1e3, ton 1e3, tonne 1e3, "
    "oz 0.028349523125, lb 0.45359237, pound 0.45359237",
    "volume": "ml 1e-3, cl 1e-2, dl 0.1, l 1, liter 1, litre 1, cc 1e-3",
    "time": "ms 1e-3, s 1, sec 1, second 1, min 60, minute 60, h 3600, hr 3600, hour 3600, "
    "d 86400, day 86400, wk 604800, week 604800, mo 2629800, month 2629800, yr 31557600, "
    "year 31557600",
    "balance": "cr 1, dr -1",
    "count": "thousand 1e3, lakh 1e5, lac 1e5, million 1e6, mio 1e6, mn 1e6, crore 1e7, cr 1e7, "
    "billion 1e9, bn 1e9, mrd 1e9, trillion 1e12",
    "bytes": "b 1, byte 1, kb 1e3, mb 1e6, gb 1e9, tb 1e12",
    "power": "mw 1e-3, w 1, kw 1e3, Mw 1e6, gw 1e9",
    "frequency": "hz 1, khz 1e3, mhz 1e6, ghz 1e9",
    "latitude": "n 1, s -1, °n 1, °s -1",
    "longitude": "e 1, w -1, °e 1, °w -1",
    "degrees Celsius": "c 1, °c 1",
    "degrees Fahrenheit": "f 1, °f 1",
}
_SCALES = {
    quantity: {unit: float(size) for unit, size in (one.rsplit(" ", 1) for one in row.split(", "))}
    for quantity, row in _TABLE.items()
}


def unit_key(unit: str) -> str:
    """Return the normalised spelling of a unit: ``CC`` is ``cc``, ``days`` is ``day``.

    The initial M of two-letter units keeps its case: MW is not mW.
    """
    unit = unit.rstrip(".").replace("° ", "°")
    for ending in (" ago", " old"):
        unit = unit.removesuffix(ending)
    key = unit.casefold()
    if len(unit) == 2 and unit[0] == "M":
        return f"M{key[1]}"
    return key[:-1] if len(key) > 2 and key.endswith("s") and key[-2].isalpha() else key


def unit_scales(units: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return the size of each unit relative to the first, or None if they are incompatible.

    Units are treated as equal if none of them is known.
    """
    known = [_quantities(unit) for unit in units]
    if len(units) == 1 or not any(known):
        return (1.0,) * len(units)
    for quantity, first in known[0].items():
        if all(quantity in quantities for quantities in known):
            return tuple(quantities[quantity] / first for quantities in known)
    return None


def _quantities(unit: str) -> dict[str, float]:
    """Return the quantities that a unit may measure, with its size in each."""
    key = unit_key(unit)
    found = {name: scales.get(key, scales.get(key.casefold())) for name, scales in _SCALES.items()}
    return {name: scale for name, scale in found.items() if scale is not None}
