#include "infer/pool.h"


#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// About 20 microseconds: longer than what lies between two jobs of a forward pass, shorter than anybody notices.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

Pool::Pool(int threads) {
    try {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    } catch (...) {
        // The system gives no more threads; those that run must not outlive this.
        stop();
        throw;
    }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
    stop_.store(true);
    epoch_.fetch_add(1);
#if defined(__linux__)
    syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
#endif
    for (auto &worker : workers_) worker.join();
    workers_.clear();
}

void Pool::run(long tasks, Call call, const void *context) {
    const uint32_t epoch = static_cast<uint32_t>(ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    Job &job = jobs_[epoch & 1];
    job.call.store(call, std::memory_order_relaxed);
    job.context.store(context, std::memory_order_relaxed);
    job.tasks.store(static_cast<uint32_t>(tasks), std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(static_cast<uint64_t>(epoch) << 32, std::memory_order_release);
    epoch_.store(epoch, std::memory_order_seq_cst);
#if defined(__linux__)
    if (sleepers_.load(std::memory_order_seq_cst) != 0)
        syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
#endif
    uint32_t seen = epoch;
    while (take(0, seen)) {
    }
    for (int spins = 0; done_.load(std::memory_order_acquire) != static_cast<uint32_t>(tasks); ++spins) {
        relax();
        // The last tasks are in other threads; one that has lost its core may need this one.
        if (spins > kSpins) std::this_thread::yield();
    }
}

// Claims and runs one task of the current job; false when there is none left.
bool Pool::take(int thread, uint32_t &epoch) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
        epoch = static_cast<uint32_t>(ticket >> 32);
        const uint32_t task = static_cast<uint32_t>(ticket);
        Job &job = jobs_[epoch & 1];
        const Call call = job.call.load(std::memory_order_relaxed);
        const void *context = job.context.load(std::memory_order_relaxed);
        if (task >= job.tasks.load(std::memory_order_relaxed)) {
            // Perhaps of a job that is being written; the ticket tells.
            const uint64_t now = ticket_.load(std::memory_order_acquire);
            if (now == ticket) return false;
            ticket = now;
            continue;
        }
        if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
            call(context, task, thread);
            done_.fetch_add(1, std::memory_order_release);
            return true;
        }
    }
}

void Pool::work(int thread) {
    uint32_t epoch = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
        if (take(thread, epoch)) continue;
        int spins = 0;
        while (epoch_.load(std::memory_order_acquire) == epoch && !stop_.load(std::memory_order_relaxed)) {
            relax();
            if (++spins > kSpins) sleep(epoch);
        }
    }
}

void Pool::sleep(uint32_t epoch) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
#if defined(__linux__)
    if (epoch_.load(std::memory_order_seq_cst) == epoch && !stop_.load())
        syscall(SYS_futex, &epoch_, FUTEX_WAIT_PRIVATE, epoch, nullptr, nullptr, 0);
#else
    if (epoch_.load(std::memory_order_seq_cst) == epoch && !stop_.load()) std::this_thread::yield();
#endif
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}
