// rank_queue.h: positions waiting for their turn, lowest rank first, leftmost first within a rank.
//
// One bucket per rank that occurs. Positions of a rank mostly arrive from left to right, so a bucket is a
// list that is sorted at most once, when its turn comes; only what arrives later goes through a heap. A
// million waiting positions therefore cost about the same each as a thousand do, which one large heap does
// not give.
// Thread rules: belongs to one call of encode.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace kvtide {

class RankQueue {
 public:
  struct Entry {
    std::uint32_t rank, position;
  };

  bool empty() const { return order_.empty(); }

  void push(Entry entry) {
    Bucket& bucket = buckets_[index_of(entry.rank)];
    if (bucket.done()) {
      bucket.list.clear();
      bucket.next = 0;
      bucket.open = false;
      order_.push_back(std::uint64_t{entry.rank} << 32 | last_index_);
      std::push_heap(order_.begin(), order_.end(), std::greater<>());
    }
    if (bucket.open) {
      bucket.late.push_back(entry.position);
      std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
    } else {
      bucket.list.push_back(entry.position);
    }
  }

  // The queue must not be empty.
  Entry pop() {
    const auto rank = static_cast<std::uint32_t>(order_.front() >> 32);
    Bucket& bucket = buckets_[static_cast<std::uint32_t>(order_.front())];
    if (!bucket.open) {
      bucket.open = true;
      if (!std::is_sorted(bucket.list.begin(), bucket.list.end()))
        std::sort(bucket.list.begin(), bucket.list.end());
    }
    const bool listed = bucket.next < bucket.list.size();
    std::uint32_t position = 0;
    if (listed && (bucket.late.empty() || bucket.list[bucket.next] <= bucket.late.front())) {
      position = bucket.list[bucket.next++];
    } else {
      std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
      position = bucket.late.back();
      bucket.late.pop_back();
    }
    if (bucket.done()) {
      std::pop_heap(order_.begin(), order_.end(), std::greater<>());
      order_.pop_back();
    }
    return {rank, position};
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> list;  // positions; sorted from the moment that `open` is set
    std::size_t next = 0;             // of list
    std::vector<std::uint32_t> late;  // a heap of the positions that came after `open`
    bool open = false;
    bool done() const { return next == list.size() && late.empty(); }
  };

  std::uint32_t index_of(std::uint32_t rank) {
    if (buckets_.empty() || rank != last_rank_) {
      const auto [found, is_new] = index_.try_emplace(rank, static_cast<std::uint32_t>(buckets_.size()));
      if (is_new) buckets_.emplace_back();
      last_rank_ = rank;
      last_index_ = found->second;
    }
    return last_index_;
  }

  std::vector<Bucket> buckets_;
  std::unordered_map<std::uint32_t, std::uint32_t> index_;  // from rank to bucket
  std::vector<std::uint64_t> order_;  // a heap of rank << 32 | bucket: those that are not done
  std::uint32_t last_rank_ = 0, last_index_ = 0;
};

}  // namespace kvtide
