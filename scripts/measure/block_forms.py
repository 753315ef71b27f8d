# SPDX-License-Identifier: MIT
"""Forms of weight blocks that study_block_choices.py compares: their levels, fields and bits.

A weight is scale * level(code), plus a min where the form has one. Groups of columns have a scale each (and a min). They
are f16, or whole numbers of a few bits under super-fields that 256 columns share.
"""

import dataclasses

SUPER_COLUMNS = 256

# Tables of levels that are no arithmetic progression. iq4nl is llama.cpp's, normal4 that of NF4. The others have the least
# squared error on normally distributed weights: lloyd2 and lloyd3 among tables symmetric about zero; table2, table3 and
# table4 among all, where each group of 32 has a scale of its own, of either sign, as iq4nl is meant to be used.
TABLES = {
    "iq4nl": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "normal4": (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407,
                0.5626, 0.7230, 1.0),
    "table4": (-127, -103, -80, -63, -48, -34, -21, -9, 2, 14, 25, 37, 51, 66, 85, 108),
    "lloyd3": (-2.1520, -1.3439, -0.7560, -0.2451, 0.2451, 0.7560, 1.3439, 2.1520),
    "table3": (-127, -77, -45, -18, 7, 34, 65, 108),
    "lloyd2": (-1.5104, -0.4528, 0.4528, 1.5104),
    "table2": (-127, -43, 18, 90),
}
# Bits of a code where levels are no power of two: five codes of three levels in a byte, three of five in 7 bits, three of
# six in a byte.
PACKED_BITS = {3: 8 / 5, 5: 7 / 3, 6: 8 / 3}


@dataclasses.dataclass(frozen=True)
class Form:
    """`levels` says what codes stand for: "min" is 0 to n - 1 with a min beside; "half" is symmetric about zero
    without having it, "whole" has zero and one more level below than above (its scale has a sign); else a table."""

    levels: str
    n_levels: int
    group: int
    field_bits: int  # of a scale, and of a min, under super-fields; 0: an f16 each and no super-block
    super_bits: int = 16  # of a super-field

    @property
    def has_min(self):
        return self.levels == "min"

    @property
    def is_signed(self):
        """Whether a scale below zero gives other weights than one above."""
        return self.levels not in ("min", "half", "lloyd2", "lloyd3")

    @property
    def n_fields(self):
        return 2 if self.has_min else 1

    @property
    def code_bits(self):
        return PACKED_BITS.get(self.n_levels, (self.n_levels - 1).bit_length())

    @property
    def bits(self):
        """Bits of a weight, where every super-block is full."""
        if self.field_bits == 0:
            return self.code_bits + 16 * self.n_fields / self.group
        return self.code_bits + self.n_fields * (self.field_bits / self.group + self.super_bits / SUPER_COLUMNS)

    @property
    def field_range(self):
        """The smallest and the largest scale of a group."""
        if self.is_signed:
            return -(1 << self.field_bits - 1), (1 << self.field_bits - 1) - 1
        return 0, (1 << self.field_bits) - 1

    @property
    def start(self):
        """The level of code 0, where levels are a progression with steps of 1."""
        return {"min": 0.0, "half": -(self.n_levels - 1) / 2, "whole": -float(self.n_levels // 2)}[self.levels]

    def values(self):
        """Returns the levels, ascending."""
        if self.levels in TABLES:
            return tuple(float(v) for v in TABLES[self.levels])
        return tuple(self.start + k for k in range(self.n_levels))

    @property
    def name(self):
        codes = f"{self.n_levels} levels, {self.levels}"
        fields = f"{self.field_bits}-bit fields" if self.field_bits else "f16 fields"
        return f"{codes}, {self.group}, {fields}" + (", f32 above" if self.super_bits == 32 else "")


def forms_of_grid():
    """Group sizes and widths of fields for levels of 2, 3 and 4 bits; of 4 bits, where little differs, fewer."""
    with_min = [(16, 4), (16, 6), (32, 4), (32, 6), (64, 4), (64, 6), (64, 0)]
    without = [(16, 4), (16, 8), (32, 6)]
    forms = []
    for bits in (2, 3, 4):
        more = bits < 4
        forms += [Form("min", 1 << bits, *fields) for fields in with_min]
        forms += [Form("min", 1 << bits, *fields) for fields in ((16, 5), (16, 8), (32, 5), (32, 8), (64, 8)) if more]
        forms += [Form("whole", 1 << bits, *fields) for fields in without]
    forms += [Form("whole", 4, *fields) for fields in ((16, 6), (32, 8), (64, 6))]
    forms += [Form("half", 4, *fields) for fields in ((16, 6), (32, 6), (64, 6), (64, 0))]
    return forms + [Form("min", 16, 32, 6, 32)]


def forms_of_codes():
    """Codes that no weight type has."""
    forms = [Form("iq4nl", 16, group, 6) for group in (16, 32, 64)] + [Form("iq4nl", 16, group, 4) for group in (16, 32)]
    forms += [Form("normal4", 16, 32, 6), Form("table4", 16, 32, 6)]
    forms += [Form("lloyd3", 8, 32, 6), Form("lloyd2", 4, 32, 6)]
    for name, n_levels in (("table2", 4), ("table3", 8)):
        forms += [Form(name, n_levels, group, width)
                  for group, width in ((16, 4), (16, 6), (16, 8), (32, 4), (32, 6), (32, 8), (64, 6))]
    forms += [Form("half", n_levels, group, 6) for n_levels in (3, 5, 6) for group in (16, 32)]
    return forms + [Form("min", 5, 32, 6), Form("min", 6, 32, 6)]


# Forms that weight types of ours have.
TYPES = {Form("half", 4, 64, 0): "2bit-sym/64", Form("min", 4, 64, 0): "2bit/64", Form("min", 4, 64, 6): "2bit-super/64",
         Form("min", 4, 32, 6): "2bit-super/32", Form("min", 4, 16, 4): "q2_k", Form("min", 8, 64, 0): "3bit/64",
         Form("min", 8, 64, 6): "3bit-super/64", Form("min", 8, 32, 6): "3bit-super/32", Form("whole", 8, 16, 8): "q3_k",
         Form("min", 16, 64, 0): "4bit/64", Form("min", 16, 64, 6): "4bit-super/64", Form("min", 16, 32, 6): "4bit-super/32"}


def forms_of_types():
    """The forms of weight types, and the codes that come nearest to deserving one."""
    return [*TYPES, Form("table2", 4, 16, 4), Form("table3", 8, 16, 4), Form("iq4nl", 16, 32, 6)]
