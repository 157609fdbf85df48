// Memory for weights that are made at load: few large pieces, on huge pages where the system gives them, because a pass
// over gigabytes in pages of 4 KiB waits for the page table too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

class Arena {
  public:
    // Memory on a cache line that lives as long as the arena.
    void *take(size_t bytes) {
        bytes = (bytes + 63) & ~static_cast<size_t>(63);
        if (bytes > left_) grow(bytes);
        void *out = next_;
        next_ += bytes;
        left_ -= bytes;
        return out;
    }

  private:
    static constexpr size_t kHuge = 2u << 20, kPiece = 32u << 20;

    struct Free {
        void operator()(uint8_t *p) const { std::free(p); }
    };
    void grow(size_t bytes) {
        const size_t size = ((bytes > kPiece ? bytes : kPiece) + kHuge - 1) / kHuge * kHuge;
        uint8_t *piece = static_cast<uint8_t *>(std::aligned_alloc(kHuge, size));
        if (!piece) throw std::bad_alloc();
        pieces_.emplace_back(piece);
#if defined(__linux__)
        madvise(piece, size, MADV_HUGEPAGE);  // a wish: small pages work as well
#endif
        next_ = piece;
        left_ = size;
    }

    std::vector<std::unique_ptr<uint8_t, Free>> pieces_;
    uint8_t *next_ = nullptr;
    size_t left_ = 0;
};
