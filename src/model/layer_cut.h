// SPDX-License-Identifier: MIT
//
// The layers of a model that run in this process when others run the rest, and how rows travel
// between them.
//
// The layers of a process form windows: runs of neighbouring layers. A pass visits them in order.
// In front of a window it takes the rows of the residual stream that other layers computed, behind
// it it hands its rows on. One process has the ends: it embeds the tokens, runs the first window,
// and takes the rows behind the last layer for the output head.

#ifndef QSF_MODEL_LAYER_CUT_H_
#define QSF_MODEL_LAYER_CUT_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace qsf {

// Rows are f32, one behind the other, in the order of the pass.
// Threads  one at a time: that which runs passes
class LayerRelay {
 public:
  virtual ~LayerRelay() = default;

  // Takes the rows in front of a window; the number of windows stands for the output head. Waits
  // for them, and not after `cancel` is set.
  // Shapes  rows [rows of the pass * hidden size]
  // Fails   kCancelled; kIo where they cannot come, naming the process that is at fault
  virtual Status receive(std::uint32_t window, std::span<float> rows,
                         const std::atomic<bool>* cancel) = 0;
  // Hands on the rows behind a window. They may be overwritten after the call.
  // Shapes  rows [rows of the pass * hidden size]
  // Fails   kIo
  virtual Status send(std::uint32_t window, std::span<const float> rows) = 0;
};

struct LayerCut {
  std::vector<std::uint32_t> layers;  // of the model: those that run here, ascending
  // Where windows end in `layers`, ascending; the last one is layers.size().
  std::vector<std::uint32_t> window_ends;
  bool has_ends = false;  // embedding and output head run here; layers[0] is 0 then
  LayerRelay* relay = nullptr;
  // Weights to be read ahead while others compute, where not all stay in memory.
  std::uint64_t ring_bytes = 0;
};

}  // namespace qsf

#endif  // QSF_MODEL_LAYER_CUT_H_
