#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "train/gemm.h"

namespace {

// The thread's memory for one matrix, kept between calls, each array on a cache line.
struct Scratch {
    float *direction, *next, *gram, *square;

    Scratch(size_t matrix, size_t side) {
        thread_local std::vector<float> memory;
        const size_t wide = (matrix + 15) / 16 * 16, small = (side * side + 15) / 16 * 16;
        if (memory.size() < 2 * (wide + small) + 16) memory.resize(2 * (wide + small) + 16);
        direction = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
        next = direction + wide;
        gram = next + wide;
        square = gram + small;
    }
};

float inverse_norm(const float *x, size_t count) {
    double sum = 0.0;
    for (size_t start = 0; start < count; start += 256) {
        float part[16] = {};
        const size_t end = std::min(count, start + 256);
        size_t i = start;
        for (; i + 16 <= end; i += 16) {
            for (size_t j = 0; j < 16; ++j) part[j] += x[i + j] * x[i + j];
        }
        for (; i < end; ++i) part[0] += x[i] * x[i];
        for (float p : part) sum += p;
    }
    return 1.0f / ((float)std::sqrt(sum) + 1e-7f);
}

// One matrix; the result is where the returned pointer says, memory.direction or memory.next.
float *orthogonalise(int rows, int cols, const Scratch &memory, int steps, Quintic poly) {
    const bool tall = rows > cols;
    const int side = tall ? cols : rows, depth = tall ? rows : cols;
    const size_t count = (size_t)rows * cols, area = (size_t)side * side;
    float *y = memory.direction, *next = memory.next;
    const float scale = inverse_norm(y, count);
    for (size_t i = 0; i < count; ++i) y[i] *= scale;
    for (int step = 0; step < steps; ++step) {
        // A tall matrix has the smaller gram matrix on its right: y y^T y = y (y^T y).
        symmetric_product(tall, !tall, side, depth, y, cols, y, cols, memory.gram, side);
        symmetric_product(false, false, side, side, memory.gram, side, memory.gram, side, memory.square, side);
        for (size_t i = 0; i < area; ++i) {
            memory.square[i] = poly.b * memory.gram[i] + poly.c * memory.square[i];
        }
        for (int i = 0; i < side; ++i) memory.square[(size_t)i * side + i] += poly.a;
        if (tall) sgemm(false, false, rows, cols, side, y, cols, memory.square, side, next, cols, false);
        else sgemm(false, false, rows, cols, side, memory.square, side, y, cols, next, cols, false);
        std::swap(y, next);
    }
    return y;
}

}  // namespace

void newton_schulz(int stack, int rows, int cols, float *x, int steps, Quintic poly) {
    const size_t count = (size_t)rows * cols;
    const Scratch memory(count, std::min(rows, cols));
    for (int s = 0; s < stack; ++s, x += count) {
        std::copy_n(x, count, memory.direction);
        std::copy_n(orthogonalise(rows, cols, memory, steps, poly), count, x);
    }
}

void muon_update(int stack, int rows, int cols, float *parameter, const float *grad, float *momentum, MuonRates rates,
                 int steps, Quintic poly) {
    const size_t count = (size_t)rows * cols;
    const Scratch memory(count, std::min(rows, cols));
    for (int s = 0; s < stack; ++s, parameter += count, grad += count, momentum += count) {
        float *const look_ahead = memory.direction;
        for (size_t i = 0; i < count; ++i) {
            const float m = momentum[i] * rates.momentum + grad[i];
            momentum[i] = m;
            look_ahead[i] = grad[i] + rates.momentum * m;
        }
        const float *direction = orthogonalise(rows, cols, memory, steps, poly);
        for (size_t i = 0; i < count; ++i) parameter[i] = parameter[i] * rates.keep - rates.size * direction[i];
    }
}

void adam_update(size_t count, float *parameter, const float *grad, float *mean, float *square, AdamRates rates) {
    for (size_t i = 0; i < count; ++i) {
        const float g = grad[i];
        const float m = mean[i] + (1.0f - rates.first) * (g - mean[i]);
        const float v = rates.second * square[i] + (1.0f - rates.second) * g * g;
        mean[i] = m;
        square[i] = v;
        parameter[i] = rates.keep * parameter[i] - rates.size * m / (std::sqrt(v * rates.correction) + rates.epsilon);
    }
}
