// Dot products of a few rows with a few tokens at a time.
//
// Shapes: R rows of a matrix, M tokens, K columns.
#pragma once
#include "infer/simd.h"

namespace tiles {

using simd::F;
using simd::kLanes;

// y[m * ldy + r] = w[r, :] . x[m, :], with K in one go.
template <int R, int M, class W>
inline void tile(const W *w, long ldw, const float *x, long ldx, long k, float *y, long ldy) {
    F acc[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = simd::zero();
    long i = 0;
    for (; i + kLanes <= k; i += kLanes) {
        F xs[M];
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) xs[m] = simd::load(x + m * ldx + i);
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const F ws = simd::load(w + r * ldw + i);
            // One token is a matter of memory alone: the rows after these are called for while these are used.
            if (M == 1) simd::prefetch(w + (r + R) * ldw + i);
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m) acc[r][m] = simd::fma(ws, xs[m], acc[r][m]);
        }
    }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m)
            y[m * ldy + r] = simd::add_tail(w + r * ldw + i, x + m * ldx + i, k - i, simd::sum(acc[r][m]));
}

template <int R, class W>
inline void rows_of(const W *w, long ldw, const float *x, long tokens, long ldx, long k, float *y, long ldy) {
    long m = 0;
    for (; m + 3 <= tokens; m += 3) tile<R, 3>(w, ldw, x + m * ldx, ldx, k, y + m * ldy, ldy);
    if (tokens - m == 2) tile<R, 2>(w, ldw, x + m * ldx, ldx, k, y + m * ldy, ldy);
    if (tokens - m == 1) tile<R, 1>(w, ldw, x + m * ldx, ldx, k, y + m * ldy, ldy);
}

// Lanes of the sums of R rows and M tokens, kept in memory between pieces of K: acc[m][r].  The order of summation is
// that of `tile`.
template <int R, int M>
inline void piece(const float *w, long ldw, const float *x, long ldx, long k, float *acc, bool first) {
    F a[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) a[r][m] = first ? simd::zero() : simd::load(acc + (m * R + r) * kLanes);
    for (long i = 0; i < k; i += kLanes) {
        F xs[M];
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) xs[m] = simd::load(x + m * ldx + i);
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const F ws = simd::load(w + r * ldw + i);
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m) a[r][m] = simd::fma(ws, xs[m], a[r][m]);
        }
    }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) simd::store(acc + (m * R + r) * kLanes, a[r][m]);
}

// The same for G groups of R rows and any number of tokens, with K in pieces whose rows stay in the first cache level
// while the tokens pass.  `acc` holds tokens * G * R * kLanes floats.
template <int G, int R>
inline void panel(const float *w, long ldw, const float *x, long tokens, long ldx, long k, float *y, long ldy,
                  float *acc) {
    constexpr long kPiece = 512;
    const long whole = k / kLanes * kLanes;
    for (long at = 0; at < whole; at += kPiece) {
        const long some = whole - at < kPiece ? whole - at : kPiece;
        const bool first = at == 0;
        for (long m = 0; m < tokens; m += 3)
            for (int g = 0; g < G; ++g) {
                const float *ws = w + g * R * ldw + at, *xs = x + m * ldx + at;
                float *sums = acc + (g * tokens + m) * R * kLanes;
                if (tokens - m >= 3) piece<R, 3>(ws, ldw, xs, ldx, some, sums, first);
                else if (tokens - m == 2) piece<R, 2>(ws, ldw, xs, ldx, some, sums, first);
                else piece<R, 1>(ws, ldw, xs, ldx, some, sums, first);
            }
    }
    for (long m = 0; m < tokens; ++m)
        for (int g = 0; g < G; ++g)
            for (int r = 0; r < R; ++r) {
                const float total = whole ? simd::sum(simd::load(acc + ((g * tokens + m) * R + r) * kLanes)) : 0.0f;
                y[m * ldy + g * R + r] =
                    simd::add_tail(w + (g * R + r) * ldw + whole, x + m * ldx + whole, k - whole, total);
            }
}

}  // namespace tiles
