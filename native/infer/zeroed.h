// Memory that reads as zero and takes no room until it is written, which large caches rely on.
#pragma once
#include <cstdlib>
#include <memory>
#include <new>

template <class T>
class Zeroed {
  public:
    Zeroed() = default;
    explicit Zeroed(size_t count) : size_(count) {
        if (!count) return;
        data_.reset(static_cast<T *>(std::calloc(count, sizeof(T))));
        if (!data_) throw std::bad_alloc();
    }
    T *data() { return data_.get(); }
    const T *data() const { return data_.get(); }
    size_t size() const { return size_; }

  private:
    struct Free {
        void operator()(T *p) const { std::free(p); }
    };
    std::unique_ptr<T, Free> data_;
    size_t size_ = 0;
};
