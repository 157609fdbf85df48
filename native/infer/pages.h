// Rows of latent KV or of indexer keys in blocks, as float32, BF16 or FP8.
//
// An FP8 row is `coded` values in E4M3, then a float32 scale for each 128 of them, then the other values in BF16.
#pragma once
#include <cstdint>
#include <vector>

enum class Stored { kF32, kBF16, kFP8 };

struct Pages {
    // `coded` values of a row are in E4M3 where FP8 is stored; with `powers` their scales are powers of two.
    Pages() = default;
    Pages(Stored stored, long width, long block_size, long coded, bool powers);

    Stored stored = Stored::kF32;
    long width = 0, block_size = 1, coded = 0, row_bytes = 0;
    bool powers = false;
    uint8_t *data = nullptr;

    // The token at `position` of the sequence that has this block table.
    uint8_t *row(const int32_t *blocks, long position) const {
        const long block = blocks[position / block_size];
        return data + (block * block_size + position % block_size) * row_bytes;
    }
    void write(const int32_t *blocks, long position, const float *values) const;
    // `count` rows as float32, [count, width]; `positions` null reads first, first + 1, ...
    void read(const int32_t *blocks, const int32_t *positions, long first, long count, float *out) const;
    // One row in its stored form, and back.
    void keep(const float *values, uint8_t *to) const;
    void values(const uint8_t *from, float *out) const;
};
