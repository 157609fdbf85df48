#include "train/pointwise.h"

#include <cmath>
#include <vector>

#include "train/vmath.h"

static float dot(const float *a, const float *b, int n) {
    float parts[16] = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; ++j) parts[j] += a[i + j] * b[i + j];
    float sum = 0.0f;
    for (; i < n; ++i) sum += a[i] * b[i];
    for (int j = 0; j < 16; ++j) sum += parts[j];
    return sum;
}

void situ_forward(const float *gate, const float *up, float *y, long n, float beta, float linear_beta) {
    const float per_beta = 1.0f / beta;
    if (linear_beta == 0.0f) {
        for (long i = 0; i < n; ++i) y[i] = beta * fast_tanh(gate[i] * per_beta) * fast_sigmoid(gate[i]) * up[i];
        return;
    }
    const float per_linear = 1.0f / linear_beta, scale = beta * linear_beta;
    for (long i = 0; i < n; ++i)
        y[i] = scale * fast_tanh(gate[i] * per_beta) * fast_sigmoid(gate[i]) * fast_tanh(up[i] * per_linear);
}

void situ_backward(const float *gate, const float *up, const float *dy, float *dgate, float *dup, long n,
                   float beta, float linear_beta) {
    const float per_beta = 1.0f / beta;
    const bool bounded = linear_beta != 0.0f;
    const float per_linear = bounded ? 1.0f / linear_beta : 1.0f, scale = bounded ? beta * linear_beta : beta;
    for (long i = 0; i < n; ++i) {
        const float a = fast_tanh(gate[i] * per_beta), s = fast_sigmoid(gate[i]);
        const float b = bounded ? fast_tanh(up[i] * per_linear) : up[i];
        const float slope = bounded ? (1.0f - b * b) * per_linear : 1.0f;
        const float t = dy[i] * s * scale;
        dgate[i] = t * b * (per_beta + a - a * (a * per_beta + s));
        dup[i] = t * a * slope;
    }
}

void gated_forward(const float *a, const float *g, float *y, long n) {
    for (long i = 0; i < n; ++i) y[i] = a[i] * fast_sigmoid(g[i]);
}

void gated_backward(const float *a, const float *g, const float *dy, float *da, float *dg, long n) {
    for (long i = 0; i < n; ++i) {
        const float s = fast_sigmoid(g[i]);
        da[i] = dy[i] * s;
        dg[i] = dy[i] * a[i] * s * (1.0f - s);
    }
}

void rms_forward(const float *x, const float *w, float *y, float *inverse, long rows, int width, float eps) {
    for (long r = 0; r < rows; ++r) {
        const float *row = x + r * width;
        const float scale = 1.0f / std::sqrt(dot(row, row, width) / width + eps);
        inverse[r] = scale;
        for (int i = 0; i < width; ++i) y[r * width + i] = row[i] * scale * w[i];
    }
}

// With u = x r and h = dy w: dx = r (h - u mean(h u)), dw = sum(dy u).
static void rms_row_backward(const float *x, const float *w, float inverse, const float *dy, float *dx, float *dw,
                             int width) {
    float parts[16] = {0};
    int i = 0;
    for (; i + 16 <= width; i += 16)
        for (int j = 0; j < 16; ++j) parts[j] += x[i + j] * dy[i + j] * w[i + j];
    float sum = 0.0f;
    for (; i < width; ++i) sum += x[i] * dy[i] * w[i];
    for (int j = 0; j < 16; ++j) sum += parts[j];
    const float along = sum * inverse * inverse / width;
    for (int k = 0; k < width; ++k) {
        dx[k] = inverse * (dy[k] * w[k] - x[k] * along);
        dw[k] += dy[k] * x[k] * inverse;
    }
}

void rms_backward(const float *x, const float *w, const float *inverse, const float *dy, float *dx, float *dw,
                  long rows, int width) {
    for (long r = 0; r < rows; ++r)
        rms_row_backward(x + r * width, w, inverse[r], dy + r * width, dx + r * width, dw, width);
}

void mix_norm_forward(const float *const *candidates, int n, const float *score, const float *w, float *y,
                      float *kept, long rows, int width, float eps, float norm_eps) {
    static thread_local std::vector<float> mixed;
    mixed.resize(width);
    float *m = mixed.data();
    for (long r = 0; r < rows; ++r) {
        float *p = kept + r * (3 * n + 1), *s = p + n, *inverse = s + n;
        float highest = -INFINITY, total = 0.0f;
        for (int c = 0; c < n; ++c) {
            const float *v = candidates[c] + r * width;
            inverse[c] = 1.0f / std::sqrt(dot(v, v, width) / width + eps);
            s[c] = dot(v, score, width) * inverse[c];
            if (s[c] > highest) highest = s[c];
        }
        for (int c = 0; c < n; ++c) total += p[c] = std::exp(s[c] - highest);
        for (int c = 0; c < n; ++c) p[c] = n == 1 ? 1.0f : p[c] / total;
        const float *first = candidates[0] + r * width;
        for (int i = 0; i < width; ++i) m[i] = p[0] * first[i];
        for (int c = 1; c < n; ++c) {
            const float *v = candidates[c] + r * width;
            const float share = p[c];
            for (int i = 0; i < width; ++i) m[i] += share * v[i];
        }
        const float scale = 1.0f / std::sqrt(dot(m, m, width) / width + norm_eps);
        inverse[n] = scale;
        for (int i = 0; i < width; ++i) y[r * width + i] = m[i] * scale * w[i];
    }
}

// With e_c = dm . V_c and ds = p (e - sum p e): dV_c = p_c dm + ds_c (r_c score - s_c r_c^2 V_c / width) and
// dscore = sum_c ds_c r_c V_c.
void mix_norm_backward(const float *const *candidates, int n, const float *score, const float *w,
                       const float *kept, const float *dy, float *const *dcandidates, float *dscore, float *dw,
                       long rows, int width) {
    static thread_local std::vector<float> scratch;
    scratch.resize(2 * width + n);
    float *m = scratch.data(), *dm = m + width, *e = dm + width;
    for (long r = 0; r < rows; ++r) {
        const float *p = kept + r * (3 * n + 1), *s = p + n, *inverse = s + n;
        for (int i = 0; i < width; ++i) m[i] = 0.0f;
        for (int c = 0; c < n; ++c) {
            const float *v = candidates[c] + r * width;
            const float share = p[c];
            for (int i = 0; i < width; ++i) m[i] += share * v[i];
        }
        rms_row_backward(m, w, inverse[n], dy + r * width, dm, dw, width);
        float mean = 0.0f;
        for (int c = 0; c < n; ++c) mean += p[c] * (e[c] = dot(dm, candidates[c] + r * width, width));
        for (int c = 0; c < n; ++c) {
            const float *v = candidates[c] + r * width;
            float *dv = dcandidates[c] + r * width;
            const float ds = n == 1 ? 0.0f : p[c] * (e[c] - mean);
            const float share = p[c], along_w = ds * inverse[c];
            const float along_v = -ds * s[c] * inverse[c] * inverse[c] / width;
            for (int i = 0; i < width; ++i) {
                dv[i] = share * dm[i] + along_w * score[i] + along_v * v[i];
                dscore[i] += along_w * v[i];
            }
        }
    }
}
