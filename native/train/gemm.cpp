// Blocked matrix product: columns of B in panels of kCols that stay in the first-level cache, rows of A in panels
// of kRows, and a micro-kernel that keeps a kRows x kCols tile of C in registers.  Panels are packed only where
// reading in place would be slower: small operands and short reuse are read where they lie.
#include "train/gemm.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "train/lanes.h"

namespace {

constexpr int kLanes = kVectorLanes, kRows = kLanes == 16 ? 12 : 6;
constexpr int kCols = 2 * kLanes;

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float LooseVec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

// Depth of a panel: kCols * kMaxDepth floats are half a first-level cache.  A block of A fills half of 512 KiB.
constexpr int kMaxDepth = 4096 / kCols < 320 ? 320 : 4096 / kCols;
constexpr int kBlockFloats = 64 * 1024;
constexpr int kMaxCols = 1024;
constexpr int kNearFloats = 6 * 1024;  // an operand this small is not worth packing

enum class Layout { packed, rows, columns };  // of A: panels of kRows, or as stored: [M,K], [K,M]

inline Vec load(const float *p) { return *reinterpret_cast<const LooseVec *>(p); }
inline void store(float *p, Vec v) { *reinterpret_cast<LooseVec *>(p) = v; }

// C tile [R, Vs * kLanes] (+)= A panel * B panel over `depth`; b_step is the distance of two rows of B.
template <int R, int Vs, Layout L>
void tile(int depth, const float *a, ptrdiff_t lda, const float *b, ptrdiff_t b_step, float *c, ptrdiff_t ldc,
          bool accumulate) {
    const ptrdiff_t row = L == Layout::rows ? lda : 1;
    const ptrdiff_t step = L == Layout::packed ? kRows : L == Layout::rows ? 1 : lda;
    Vec sum[R][Vs];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < Vs; ++v) sum[r][v] = Vec{};
    }
    for (int p = 0; p < depth; ++p) {
        Vec y[Vs];
#pragma GCC unroll 2
        for (int v = 0; v < Vs; ++v) y[v] = load(b + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Vec x = a[r * row] - Vec{};
#pragma GCC unroll 2
            for (int v = 0; v < Vs; ++v) sum[r][v] += x * y[v];
        }
        a += step;
        b += b_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < Vs; ++v) {
            float *out = c + r * ldc + v * kLanes;
            store(out, accumulate ? load(out) + sum[r][v] : sum[r][v]);
        }
    }
}

using Tile = void (*)(int, const float *, ptrdiff_t, const float *, ptrdiff_t, float *, ptrdiff_t, bool);

template <Layout L, int Vs, int R = kRows>
Tile tile_of(int rows) {
    if constexpr (R == 1) {
        return tile<1, Vs, L>;
    } else {
        return rows >= R ? tile<R, Vs, L> : tile_of<L, Vs, R - 1>(rows);
    }
}

template <int Vs>
Tile choose(Layout layout, int rows) {
    switch (layout) {
        case Layout::packed: return tile_of<Layout::packed, Vs>(rows);
        case Layout::rows: return tile_of<Layout::rows, Vs>(rows);
        default: return tile_of<Layout::columns, Vs>(rows);
    }
}

// A [rows, depth] times a panel of B, into `cols` columns of C.  rows >= 1, cols <= kCols.
void panel(Layout layout, int rows, int cols, int depth, const float *a, ptrdiff_t lda, const float *b,
           ptrdiff_t b_step, float *c, ptrdiff_t ldc, bool accumulate) {
    const bool narrow = cols <= kLanes;
    const bool whole = cols == kCols || cols == kLanes;
    const ptrdiff_t next = layout == Layout::packed ? (ptrdiff_t)kRows * depth
                           : layout == Layout::rows ? kRows * lda
                                                    : kRows;
    const Tile full = narrow ? choose<1>(layout, kRows) : choose<2>(layout, kRows);
    float spare[kRows * kCols];
    for (int i = 0; i < rows; i += kRows, a += next) {
        const int own = std::min(kRows, rows - i);
        const Tile run = own == kRows ? full : narrow ? choose<1>(layout, own) : choose<2>(layout, own);
        float *out = c + i * ldc;
        if (whole) {
            run(depth, a, lda, b, b_step, out, ldc, accumulate);
            continue;
        }
        run(depth, a, lda, b, b_step, spare, kCols, false);
        for (int r = 0; r < own; ++r) {
            for (int j = 0; j < cols; ++j) {
                out[r * ldc + j] = spare[r * kCols + j] + (accumulate ? out[r * ldc + j] : 0.0f);
            }
        }
    }
}

#if defined(__AVX2__)
// Eight rows of eight floats, transposed in registers.
inline void transpose8(__m256 r[8]) {
    __m256 t[8], u[8];
    for (int i = 0; i < 4; ++i) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

// `own` <= 8 rows of x become columns of out, whose rows are Width apart.  Each row of out gets 4 or 8 floats,
// even if fewer are its own: rows are written in order, so only what lies behind the last one must be spare.
template <int Width>
inline int transpose_group(const float *x, ptrdiff_t ldx, int own, int depth, float *out) {
    int p = 0;
    for (; p + 8 <= depth; p += 8) {
        __m256 r[8];
        for (int i = 0; i < 8; ++i) r[i] = i < own ? _mm256_loadu_ps(x + i * ldx + p) : _mm256_setzero_ps();
        transpose8(r);
        for (int i = 0; i < 8; ++i) {
            if (own <= 4) _mm_storeu_ps(out + (p + i) * Width, _mm256_castps256_ps128(r[i]));
            else _mm256_storeu_ps(out + (p + i) * Width, r[i]);
        }
    }
    return p;
}
#endif

// x [own, depth] with row stride ldx becomes out [depth, Width]; columns from `own` on are zero or unread.
template <int Width>
void pack_transposed(const float *x, ptrdiff_t ldx, int own, int depth, float *out) {
    int done = 0;
#if defined(__AVX2__)
    if (own == Width) {
        static_assert(Width % 8 == 0 || Width % 8 == 4 || Width < 8, "a last group would overwrite the first");
#pragma GCC unroll 4
        for (int i = 0; i < Width; i += 8) {
            done = transpose_group<Width>(x + i * ldx, ldx, std::min(8, Width - i), depth, out + i);
        }
    }
#endif
    for (int p = done; p < depth; ++p) {
        for (int r = 0; r < own; ++r) out[p * Width + r] = x[r * ldx + p];
        for (int r = own; r < Width; ++r) out[p * Width + r] = 0.0f;
    }
}

// x [depth, own] with row stride ldx becomes out [depth, Width], zeros behind.
template <int Width>
void pack_straight(const float *__restrict x, ptrdiff_t ldx, int own, int depth, float *__restrict out) {
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef float Two __attribute__((vector_size(8), aligned(4), may_alias));
    static_assert(Width % 2 == 0, "a panel is copied in fours and a last two");
    if (own < Width) {
        for (int p = 0; p < depth; ++p) {
            for (int r = 0; r < own; ++r) out[p * Width + r] = x[p * ldx + r];
            for (int r = own; r < Width; ++r) out[p * Width + r] = 0.0f;
        }
        return;
    }
    for (int p = 0; p < depth; ++p, x += ldx, out += Width) {
        if constexpr (Width % kLanes == 0) {
#pragma GCC unroll 4
            for (int r = 0; r < Width; r += kLanes) store(out + r, load(x + r));
        } else {
#pragma GCC unroll 4
            for (int r = 0; r + 4 <= Width; r += 4) {
                *reinterpret_cast<Four *>(out + r) = *reinterpret_cast<const Four *>(x + r);
            }
            if constexpr (Width % 4) {
                *reinterpret_cast<Two *>(out + Width - 2) = *reinterpret_cast<const Two *>(x + Width - 2);
            }
        }
    }
}

// Panels of `Width` of an operand's outer dimension, one after another, each [depth, Width].
template <int Width>
void pack(bool transposed, const float *x, ptrdiff_t ldx, int outer, int depth, float *out) {
    for (int i = 0; i < outer; i += Width, out += (ptrdiff_t)Width * depth) {
        const int own = std::min(Width, outer - i);
        if (transposed) pack_transposed<Width>(x + i * ldx, ldx, own, depth, out);
        else pack_straight<Width>(x + i, ldx, own, depth, out);
    }
}

// Memory of this thread for packed panels, aligned to a cache line, kept between calls.
float *scratch(std::vector<float> &memory, size_t floats) {
    if (memory.size() < floats + 32) memory.resize(floats + 32);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + ((64 - address % 64) % 64) / 4;
}

inline int round_up(int x, int unit) { return (x + unit - 1) / unit * unit; }

// The product for one slice of the depth, [m,k] x [k,n]; with `lower` only the tiles that reach the diagonal or
// lie below it.
void slice(bool lower, bool trans_a, bool trans_b, int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
           ptrdiff_t ldb, float *c, ptrdiff_t ldc, bool accumulate) {
    thread_local std::vector<float> memory_a, memory_b;
    const bool far_a = trans_a ? (ptrdiff_t)k * lda > kNearFloats : (ptrdiff_t)kRows * lda > kNearFloats / 2;
    const bool pack_a = n > 2 * kCols && (far_a || n > 8 * kCols);
    const bool far_b = (ptrdiff_t)k * ldb > kNearFloats && m > 4 * kRows;
    const bool pack_b = trans_b || far_b;
    const Layout layout = pack_a ? Layout::packed : trans_a ? Layout::columns : Layout::rows;
    const int block = std::max(kRows, kBlockFloats / std::max(k, 1) / kRows * kRows);
    const int width = std::min(n, kMaxCols);
    float *packed_b = scratch(memory_b, (size_t)(pack_b ? round_up(width, kCols) : kCols) * k);
    float *packed_a = pack_a ? scratch(memory_a, (size_t)round_up(std::min(m, block), kRows) * k) : nullptr;
    for (int j = 0; j < n; j += kMaxCols) {
        const int cols = std::min(kMaxCols, n - j);
        const int ragged = cols % kCols;
        const float *own_b = trans_b ? b + j * ldb : b + j;
        if (pack_b) pack<kCols>(trans_b, own_b, ldb, cols, k, packed_b);
        else if (ragged) pack<kCols>(false, own_b + cols - ragged, ldb, ragged, k, packed_b);
        for (int i = 0; i < m; i += block) {
            const int rows = std::min(block, m - i);
            const float *own_a = trans_a ? a + i : a + i * lda;
            if (pack_a) pack<kRows>(!trans_a, own_a, lda, rows, k, packed_a);
            for (int q = 0; q < cols; q += kCols) {
                const bool last = cols - q < kCols;
                const bool packed = pack_b || last;
                const float *y = !packed ? own_b + q : pack_b ? packed_b + (ptrdiff_t)q * k : packed_b;
                const int skip = lower ? std::max(0, j + q - i) / kRows * kRows : 0;
                if (skip >= rows) break;
                const float *x = pack_a ? packed_a + (ptrdiff_t)skip * k : own_a + skip * (trans_a ? 1 : lda);
                panel(layout, rows - skip, std::min(kCols, cols - q), k, x, lda, y, packed ? kCols : ldb,
                      c + (i + skip) * ldc + j + q, ldc, accumulate);
            }
        }
    }
}

void product(bool lower, bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float *c, int ldc, bool accumulate) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        if (accumulate) return;
        for (int i = 0; i < m; ++i) std::fill_n(c + (ptrdiff_t)i * ldc, n, 0.0f);
        return;
    }
    const int slices = (k + kMaxDepth - 1) / kMaxDepth;
    const int depth = round_up((k + slices - 1) / slices, 8);
    for (int p = 0; p < k; p += depth) {
        slice(lower, trans_a, trans_b, m, n, std::min(depth, k - p), a + (trans_a ? (ptrdiff_t)p * lda : p), lda,
              b + (trans_b ? p : (ptrdiff_t)p * ldb), ldb, c, ldc, accumulate || p > 0);
    }
}

}  // namespace

void sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
           float *c, int ldc, bool accumulate) {
    product(false, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void symmetric_product(bool trans_a, bool trans_b, int n, int k, const float *a, int lda, const float *b, int ldb,
                       float *c, int ldc) {
    constexpr int kSide = 16;
    product(true, trans_a, trans_b, n, n, k, a, lda, b, ldb, c, ldc, false);
    for (int i = 0; i < n; i += kSide) {
        for (int j = 0; j <= i; j += kSide) {
            for (int q = j; q < std::min(j + kSide, n); ++q) {
                for (int p = std::max(i, q + 1); p < std::min(i + kSide, n); ++p) {
                    c[(ptrdiff_t)q * ldc + p] = c[(ptrdiff_t)p * ldc + q];
                }
            }
        }
    }
}
