"""`mlp_prefill` on 8-bit weights and rows: what the library does differently (`mlp_cte_quantization`, `…_projection`).

Rows come in 8 bits with a scale each. Matmuls take two rows of the PE array at once. Weights have a scale per column
("row" quantization), which HBM holds once per partition in fp32: gate's and up's are loaded once, down's 1024 columns
at a time. Each projection's result is multiplied by them on VectorE and by the row's scale on ScalarE; the product of
gate and up is quantized again by its absolute maximum per row. With one scale for a whole weight ("static") ScalarE
applies it, and VectorE only clips. The result has tiles of its own, where rows and source weights were.
"""

from __future__ import annotations

from neuroncore.isa import Access, Tile

from benchmarks.kernels.mlp_prefill import MlpPrefill, MlpPrefillKernel
from benchmarks.kernels.writer import BANK, Writer, chunks

__all__ = ["QuantizedMlpPrefillKernel"]


class QuantizedMlpPrefillKernel(MlpPrefillKernel):
    """One core's program; no norm, no biases."""

    weight_dtype = "fp8_e4m3"

    def allocate(self, w: Writer, p: MlpPrefill, subtiles: int) -> None:
        """Rows and source weights share their place with results, down's weights and scales."""
        row, rounded = p.quantization == "row", p.rounded
        self.inner = [[w.sbuf(rounded, "bf16") for _ in range(subtiles)]]
        self.narrow_inner = [w.sbuf(rounded, "fp8_e4m3") for _ in range(subtiles)]
        self.magnitude = w.sbuf(rounded, "bf16")
        self.row_scales = [w.sbuf(1, "fp32") for _ in range(subtiles)]
        self.small = w.ring(4 * subtiles, 1, "fp32")
        self.column_scales = [w.sbuf(self.columns if row else 1, "fp32") for _ in range(2)]
        self.scales_hbm = w.hbm("scales", 128, max(p.hidden, p.intermediate), "fp32")
        with w.scope():
            self.hidden = [w.sbuf(p.hidden, "fp8_e4m3") for _ in range(subtiles)]
            self.source_weights = w.ring(4, 8 * self.columns, self.weight_dtype)
        with w.scope():
            self.results = [w.sbuf(p.hidden, "bf16") for _ in range(subtiles)]
            self.down_weights = w.ring(8, 2 * 1024, self.weight_dtype)
            self.down_scales = w.ring(4, 1024 if row else 1, "fp32")
            self.other = w.sbuf(p.hidden // 2, "bf16") if p.splits_intermediate else w.sbuf(1, "bf16")

    def load_vectors(self) -> None:
        """Scales of gate and up."""
        for scales in self.column_scales:
            self.w.dma(scales, self.scales_hbm.rows(0, 128, (0, scales.free_elements)), "qScales")

    def load_rows(self, start: int, lengths: list[int]) -> None:
        """Rows in 8 bits, then their scales."""
        for i, n in enumerate(lengths):
            self.w.dma(self.hidden[i].columns(0, self.p.hidden, (0, n)), self.x.rows(start + 128 * i, n), "qX")
        for i, n in enumerate(lengths):
            self.w.dma(self.row_scales[i].columns(0, 1, (0, n)), self.scales_hbm.rows(0, n, (0, 1)), "qX")

    def evict(
        self, i: int, n: int, a: int, width: int, result: Access, psum: Access, *, bias: bool, function: bool,
        multiply: bool,
    ) -> None:  # fmt: skip
        """Gate: scales, function. Up: times gate, scales."""
        w, p = self.w, self.p
        scales = self.column_scales[int(multiply or not p.gate)].columns(0, 1, (0, n))
        row = self.row_scales[i].columns(0, 1, (0, n))
        if multiply:
            w.emit("tensor_tensor", dst=result, data1=result, data2=psum, op="multiply")
        if p.quantization == "row":
            columns = self.column_scales[int(multiply or not p.gate)].columns(a, a + width, (0, n))
            w.emit("tensor_tensor", dst=result, data1=result if multiply else psum, data2=columns, op="multiply")
        else:
            row = scales
        source = result if multiply or p.quantization == "row" else psum
        w.activate(result, source, p.function if function else "copy", scale=row)

    def quantize(self, inner: list[Tile], lengths: list[int]) -> list[Tile]:
        """The product of gate and up in 8 bits."""
        w, p = self.w, self.p
        self.product_scales = [self.small.take() for _ in lengths]
        for i, n in enumerate(lengths):
            whole, narrow = (t.columns(0, self.columns, (0, n)) for t in (inner[i], self.narrow_inner[i]))
            scale = self.product_scales[i].columns(0, 1, (0, n))
            if p.quantization == "static":
                w.activate(whole, whole, "copy", scale=self.column_scales[0].columns(0, 1, (0, n)))
                w.emit("tensor_scalar", dst=narrow, data=whole, op0="min", operand0=240.0, op1="max", operand1=-240.0)
                continue
            inverse = self.small.take().columns(0, 1, (0, n))
            w.emit(
                "tensor_scalar_reduce", dst=self.magnitude.columns(0, self.columns, (0, n)), data=whole, op0="abs_max",
                operand0=0.0, reduce_op="max", reduce_res=scale,
            )  # fmt: skip
            w.emit("tensor_scalar", dst=scale, data=scale, op0="multiply", operand0=1 / 240, op1="max", operand1=1e-6)
            w.emit("reciprocal", dst=inverse, data=scale)
            w.activate(narrow, whole, "copy", scale=inverse)
        return self.narrow_inner

    def transpose(self, x: Tile, width: int, n: int, *, scaled: bool) -> None:
        """As for 16 bits; a PSUM element of 8 bits has two places, so that a copy reads every second one."""
        w = self.w
        for start, size in chunks(width, BANK):
            bank = self.narrow.take()
            for a, k in chunks(size, 128):
                into = bank.access((0, k), ((2, n),), offset=2 * a)
                w.transpose(into, x.columns(start + a, start + a + k, (0, n)))
            rows = 128 if size > 127 else size
            end = start + min(size, x.free_elements - start)
            w.copy(x.columns(start, end, (0, rows)), bank.access((0, rows), ((2, end - start),)))

    def project_down(self, inner: list[Tile], hidden: list[Tile], lengths: list[int]) -> list[Tile]:
        """1024 output columns at a time, 256 rows of the weight per load and matmul."""
        p, w = self.p, self.w
        for start, size in chunks(p.hidden, 1024):
            pieces = chunks(size, BANK)
            banks = {(i, j): self.psum.take() for i in range(len(lengths)) for j in range(len(pieces))}
            scales = self.down_scales.take()
            if p.quantization == "row":
                w.dma(scales.columns(0, size), self.scales_hbm.rows(0, 128, (start, start + size)), "qScales")
            for row, depth in chunks(self.columns, 256):
                tile = self.down_weights.take()
                part, twice = min(depth, 128), 2 if depth == 256 else 1
                w.dma(
                    tile.access((0, part), ((1024, twice), (1, size))),
                    self.down.access(
                        part, ((128 * p.hidden, twice), (1, size)), offset=row * p.hidden + start,
                        partition_stride=p.hidden,
                    ),
                    "qWeights",
                )  # fmt: skip
                for i, n in enumerate(lengths):
                    for j, (a, width) in enumerate(pieces):
                        w.matmul(
                            banks[i, j].columns(0, width, (0, n)), inner[i].columns(row, row + n, (0, part)),
                            tile.columns(a, a + width, (0, part)), first=row == 0,
                        )  # fmt: skip
            for i, n in enumerate(lengths):
                for j, (a, width) in enumerate(pieces):
                    result = self.results[i].columns(start + a, start + a + width, (0, n))
                    psum = banks[i, j].columns(0, width, (0, n))
                    if p.quantization == "row":
                        w.emit(
                            "tensor_tensor", dst=result, data1=psum, data2=scales.columns(a, a + width, (0, n)),
                            op="multiply",
                        )  # fmt: skip
                        psum = result
                    w.activate(result, psum, "copy", scale=self.product_scales[i].columns(0, 1, (0, n)))
        return self.results
