// sources.h: what a value of a function is made from: which inputs, and which states' contents of the call before.
//
// A read of a state behind a write of it is what was written. A slice that covers what a slice_update before it replaced, and
// nothing else, is made from the update alone: that is how a cache that is written and never used is told from one that is.
// Ownership: refers to a function and its Indices, which must outlive it.
// Thread rules: const from any thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coreml/lint/indices.h"

namespace kvtide::coreml {

struct Sources {
  std::set<std::string> inputs;
  std::set<std::string> values;  // of those the ones of which more than the shape is used
  std::set<std::string> states;  // whose old contents it holds

  bool empty() const { return inputs.empty() && states.empty(); }
  void add(const Sources& other);
};

// A write of a state, with the value that the state held before.
struct StateWrite {
  std::string state, data;
  const Operation* operation = nullptr;
  std::string before;  // what was written earlier in the call; empty: the old contents
};

class SourceMap {
 public:
  SourceMap(const Function& function, const Indices& indices);

  const Sources& of(const std::string& name) const;
  const std::vector<StateWrite>& writes() const { return writes_; }
  // The state whose contents, whole and at some time of the call, a name stands for; empty: none. Slice updates on the way are
  // steps of them.
  std::string state_of(const std::string& name) const;
  // The last value that a state was given before this read; empty: none.
  std::string value_of(const Operation& read) const;

 private:
  Sources sources_of_slice(const Operation& slice) const;

  const Indices& indices_;
  std::map<std::string, Sources> sources_;
  std::map<const Operation*, std::string> read_values_;
  std::vector<StateWrite> writes_;
};

// How the rows of two slices of one tensor lie.
enum class Overlap { inside, apart, unknown };  // `inside`: all of `part` is in `whole`
Overlap overlap(const std::vector<AxisSpan>& part, const std::vector<AxisSpan>& whole);

}  // namespace kvtide::coreml
