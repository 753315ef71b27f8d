# SPDX-License-Identifier: MIT
"""Quantises matrices to the forms of block_forms.py, with fields chosen by search. Needs torch.

For each group the search tries a grid of ranges and refines each by weighted least squares. Scales and mins then become
whole numbers under super-fields. Several super-fields are tried; in turns, each scale and min moves by one where that
lowers the error, and least squares sets the super-fields again. The result is the weights as a file would decode them.
"""

import torch

from block_forms import SUPER_COLUMNS

RANGE_CUTS = {2: (0.0, 0.1, 0.2, 0.3, 0.4), 3: (0.0, 0.07, 0.14, 0.21), 4: (0.0, 0.05, 0.1, 0.15)}
SCALE_FACTORS = (0.4, 0.5, 0.58, 0.66, 0.74, 0.8, 0.86, 0.92, 0.97, 1.02)
SUPER_FACTORS = (0.82, 0.9, 1.0)
TURNS = 2
SUPER_BLOCKS_AT_ONCE = 512  # 512 KiB of weights, so that temporaries stay in caches
TABLE_STEPS = 4096  # between the ends of a table: the level of each step is looked up, which is much faster than bisection


class Search:
    """The search for one form."""

    def __init__(self, form):
        self.form = form
        values = torch.tensor(form.values(), dtype=torch.float32)
        self.values, self.even = values, bool((values[1:] - values[:-1] == 1).all())
        self.per_step = (values[-1] - values[0]).item() / (TABLE_STEPS - 1)
        steps = values[0] + self.per_step * torch.arange(TABLE_STEPS)
        self.of_step = values[(steps[:, None] - values).abs().argmin(1)]

    def levels(self, x, scale, low):
        """Returns the level nearest to each weight; x [n, group], scale and low [n, 1]."""
        inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
        at = (x - low) * inverse if low is not None else x * inverse
        if self.even:
            return at.sub_(self.form.start).round_().clamp_(0, self.form.n_levels - 1).add_(self.form.start)
        step = at.sub_(self.values[0]).mul_(1 / self.per_step).round_().clamp_(0, TABLE_STEPS - 1)
        return self.of_step.take(step.long())

    @staticmethod
    def error(x, weight, levels, scale, low):
        off = levels * scale - x
        if low is not None:
            off += low
        return off.square_().mul_(weight).sum(1, keepdim=True)

    def fit(self, x, weight, levels):
        """Returns scale and min by least squares for given levels; a min is at most zero and its scale at least."""
        ll, lx = (weight * levels * levels).sum(1, keepdim=True), (weight * levels * x).sum(1, keepdim=True)
        alone = torch.where(ll > 0, lx / ll, torch.zeros_like(ll))
        if not self.form.has_min:
            return alone, None
        w, l, xs = (weight.sum(1, keepdim=True), (weight * levels).sum(1, keepdim=True),
                    (weight * x).sum(1, keepdim=True))
        determinant = w * ll - l * l
        scale = torch.where(determinant > 0, (w * lx - l * xs) / determinant, torch.zeros_like(w))
        low = torch.where(w > 0, (xs - scale * l) / w, torch.zeros_like(w))
        above = low > 0
        return torch.where(above, alone, scale).clamp_(min=0), torch.where(above, torch.zeros_like(low), low)

    def starts(self, x):
        """Yields scale and min of each candidate range."""
        if self.form.has_min:
            lowest, highest = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True)
            cuts = RANGE_CUTS.get(self.form.n_levels.bit_length() - 1, RANGE_CUTS[2])
            for below in cuts:
                for above in cuts:
                    low = lowest * (1 - below)
                    yield ((highest * (1 - above) - low) / (self.form.n_levels - 1)).clamp(min=0), low
            return
        # The weight of the largest magnitude at the farthest level, whose sign the scale then takes.
        farthest = self.values[self.values.abs().argmax()]
        peak = x.gather(1, x.abs().argmax(1, keepdim=True))
        for factor in SCALE_FACTORS:
            scale = peak / farthest * factor
            yield scale if self.form.is_signed else scale.abs(), None
            if self.form.is_signed:
                yield -scale, None

    def search_groups(self, x, weight):
        """Returns scale and min of every group, in f32."""
        best = None
        for scale, low in self.starts(x):
            for _ in range(1 if self.form.has_min else 2):
                levels = self.levels(x, scale, low)
                scale, low = self.fit(x, weight, levels)
            off = self.error(x, weight, levels, scale, low)
            if best is None:
                best = off, scale, low
                continue
            better = off < best[0]
            best = (torch.where(better, off, best[0]), torch.where(better, scale, best[1]),
                    None if low is None else torch.where(better, low, best[2]))
        return best[1], best[2]

    def round_super(self, value):
        return value.half().float() if self.form.super_bits == 16 else value

    def spread(self, of_super):
        """Super-fields [n_super, 1] for each group of it."""
        return of_super.repeat_interleave(SUPER_COLUMNS // self.form.group, 0)

    def fit_super(self, x, weight, levels, scales, mins):
        """Returns d and dmin by least squares for given levels and whole-numbered fields."""
        n_super = x.numel() // SUPER_COLUMNS
        a = (levels * scales).reshape(n_super, SUPER_COLUMNS)
        x, weight = x.reshape(n_super, SUPER_COLUMNS), weight.reshape(n_super, SUPER_COLUMNS)
        aa, ax = (weight * a * a).sum(1, keepdim=True), (weight * a * x).sum(1, keepdim=True)
        alone = torch.where(aa > 0, ax / aa, torch.zeros_like(aa))
        if mins is None:
            return self.round_super(alone), None
        m = mins.expand(-1, self.form.group).reshape(n_super, SUPER_COLUMNS)
        mm, am, mx = ((weight * m * m).sum(1, keepdim=True), (weight * a * m).sum(1, keepdim=True),
                      (weight * m * x).sum(1, keepdim=True))
        determinant = aa * mm - am * am
        solvable = determinant > 1e-6 * aa * mm
        d = torch.where(solvable, (ax * mm - mx * am) / determinant, alone)
        dmin = torch.where(solvable, (mx * aa - ax * am) / determinant, torch.zeros_like(d))
        return self.round_super(d.clamp(min=0)), self.round_super(dmin.clamp(max=0))

    def candidate(self, x, weight, scale, low, factor):
        """Returns the error of each super-block and the weights, with super-fields `factor` times the covering ones."""
        form = self.form
        least, most = form.field_range
        per_super = SUPER_COLUMNS // form.group
        d = self.round_super(scale.reshape(-1, per_super).abs().amax(1, keepdim=True) / max(most, -least) * factor)
        dmin = None
        if form.has_min:
            dmin = self.round_super(low.reshape(-1, per_super).amin(1, keepdim=True) / most * factor)

        def whole(value, of_super, lowest):
            step = self.spread(of_super)
            return torch.where(step == 0, torch.zeros_like(step), value / step).round().clamp(lowest, most)

        scales = whole(scale, d, least)
        mins = whole(low, dmin, 0) if form.has_min else None

        def off_of(scales, mins):
            s = self.spread(d) * scales
            m = self.spread(dmin) * mins if form.has_min else None
            levels = self.levels(x, s, m)
            return self.error(x, weight, levels, s, m), levels

        off, levels = off_of(scales, mins)
        for _ in range(TURNS):
            for step in (-1, 1):
                moved = (scales + step).clamp(least, most)
                other, _ = off_of(moved, mins)
                scales, off = torch.where(other < off, moved, scales), torch.minimum(other, off)
            for step in (-1, 1) if form.has_min else ():
                moved = (mins + step).clamp(0, most)
                other, _ = off_of(scales, moved)
                mins, off = torch.where(other < off, moved, mins), torch.minimum(other, off)
            _, levels = off_of(scales, mins)
            d, dmin = self.fit_super(x, weight, levels, scales, mins)
            off, levels = off_of(scales, mins)
        values = levels * (self.spread(d) * scales)
        if form.has_min:
            values += self.spread(dmin) * mins
        return off.reshape(-1, per_super).sum(1), values

    def quantise_part(self, x, weight):
        """x and weight [n_super, 256]."""
        groups, of_group = x.reshape(-1, self.form.group), weight.reshape(-1, self.form.group)
        scale, low = self.search_groups(groups, of_group)
        if self.form.field_bits == 0:
            scale, low = scale.half().float(), None if low is None else low.half().float()
            values = self.levels(groups, scale, low) * scale
            return (values if low is None else values + low).reshape(x.shape)
        best_off = best = None
        for factor in SUPER_FACTORS:
            off, values = self.candidate(groups, of_group, scale, low, factor)
            values = values.reshape(x.shape)
            if best is None:
                best_off, best = off, values
                continue
            better = off < best_off
            best_off, best = torch.where(better, off, best_off), torch.where(better[:, None], values, best)
        return best


def quantise(form, matrix, importance=None):
    """Returns the weights that a file of this form would give back.

    matrix [rows, cols], cols a multiple of 256; importance [cols] weighs squared errors, equally when None.
    """
    x = matrix.float().reshape(-1, SUPER_COLUMNS)
    weight = torch.ones_like(matrix) if importance is None else importance.float().expand(matrix.shape)
    weight = weight.reshape(-1, SUPER_COLUMNS)
    search = Search(form)
    parts = [search.quantise_part(x[i:i + SUPER_BLOCKS_AT_ONCE], weight[i:i + SUPER_BLOCKS_AT_ONCE].contiguous())
             for i in range(0, len(x), SUPER_BLOCKS_AT_ONCE)]
    return torch.cat(parts).reshape(matrix.shape)
