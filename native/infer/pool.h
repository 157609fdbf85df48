// Threads that share the tasks of one job at a time.
//
// A task is claimed by one atomic step, so a thread that has lost its core holds up at most the task it is in, and
// a thread that comes late finds nothing left to do.  Waiting threads spin for a bounded time, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

class Pool {
  public:
    // Threads that work, the caller's among them; at least one.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Call f(task, thread) for every task from 0 to tasks - 1 and return when all are done.  One caller at a time;
    // f must not throw.  `thread` is below threads() and never used by two tasks at once.
    template <class Function>
    void each(long tasks, const Function &f) {
        if (tasks <= 0) return;
        if (tasks == 1 || workers_.empty()) {
            for (long i = 0; i < tasks; ++i) f(i, 0);
            return;
        }
        run(tasks, [](const void *context, long task, int thread) {
            (*static_cast<const Function *>(context))(task, thread);
        }, &f);
    }

  private:
    using Call = void (*)(const void *context, long task, int thread);
    struct Job {
        std::atomic<Call> call{nullptr};
        std::atomic<const void *> context{nullptr};
        std::atomic<uint32_t> tasks{0};
    };

    void run(long tasks, Call call, const void *context);
    void work(int thread);
    bool take(int thread, uint32_t &epoch);
    void sleep(uint32_t epoch);
    void stop();

    std::vector<std::thread> workers_;
    // Two, so that a thread that reads one while the next is written reads what its failed claim then discards.
    Job jobs_[2];
    alignas(64) std::atomic<uint64_t> ticket_{0};  // epoch in the upper half, next task in the lower
    alignas(64) std::atomic<uint32_t> done_{0};
    alignas(64) std::atomic<uint32_t> epoch_{0};  // what sleeping threads wait on
    std::atomic<uint32_t> sleepers_{0};
    std::atomic<bool> stop_{false};
};
