// SPDX-License-Identifier: MIT
//
// The reference of qsf-parity: llama.cpp, or a fork of it, in a program of its own.
//
//   qsf-parity-llama MODEL.gguf --context N --threads N --kv-type f16|f32 [--trace 1]
//
// It says hello on standard output, then answers what comes on standard input until that ends;
// docs/parity-protocol.md has the protocol. scripts/measure/build_parity_shim compiles it against
// the header of the tree that it is linked with, since structs of that library are passed by value
// and change with every version, and defines which of the functions that changed their names the
// header has:
//
//   QSF_LLAMA_VOCAB       tokens belong to a llama_vocab, not to the model
//   QSF_LLAMA_MODEL_LOAD  llama_model_load_from_file and llama_init_from_model
//   QSF_LLAMA_MEMORY      llama_memory_clear; QSF_LLAMA_KV_SELF llama_kv_self_clear
//   QSF_LLAMA_FLASH_TYPE  flash_attn_type instead of flash_attn
//   QSF_LLAMA_ROPE_TYPE   llama_model_rope_type instead of llama_rope_type
//   QSF_LLAMA_FUSED       nodes are fused under names that then mean something else: no trace

#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#ifndef QSF_LLAMA_COMMIT
#define QSF_LLAMA_COMMIT "unknown"
#endif
#ifndef QSF_LLAMA_NAME
#define QSF_LLAMA_NAME "llama.cpp"
#endif

#ifdef QSF_LLAMA_FUSED
#define QSF_LLAMA_TRACES "false"
#else
#define QSF_LLAMA_TRACES "true"
#endif

namespace {

constexpr std::uint32_t kMagic = 0x50465351;  // "QSFP"
enum Kind : std::uint32_t {
  kHello = 1,
  kTokenize = 2,
  kTokens = 3,
  kEvaluate = 4,
  kLogits = 5,
  kRefusal = 6,
  kPoint = 7
};
constexpr std::uint64_t kMaxRequestBytes = 1U << 28;

struct Header {
  std::uint32_t magic;
  std::uint32_t kind;
  std::uint64_t bytes;
};

// Standard output, which what the library prints must not reach.
int g_answers = -1;

bool read_all(void* to, std::size_t n_bytes) {
  auto* at = static_cast<char*>(to);
  while (n_bytes > 0) {
    const ssize_t n = ::read(STDIN_FILENO, at, n_bytes);
    if (n <= 0) return false;
    at += n;
    n_bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

void write_all(const void* from, std::size_t n_bytes) {
  const auto* at = static_cast<const char*>(from);
  while (n_bytes > 0) {
    const ssize_t n = ::write(g_answers, at, n_bytes);
    if (n <= 0) std::_Exit(1);  // nobody listens any more
    at += n;
    n_bytes -= static_cast<std::size_t>(n);
  }
}

void send(std::uint32_t kind, const std::string& payload) {
  const Header header = {kMagic, kind, payload.size()};
  write_all(&header, sizeof header);
  write_all(payload.data(), payload.size());
}

[[noreturn]] void refuse(const std::string& reason) {
  send(kRefusal, reason);
  std::_Exit(1);
}

std::uint32_t u32_at(const std::string& from, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, from.data() + offset, sizeof value);
  return value;
}

std::string escaped(const char* text) {
  std::string out;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == '"' || *c == '\\') out += '\\';
    out += static_cast<unsigned char>(*c) < 0x20 ? ' ' : *c;
  }
  return out;
}

// What a node of the library's graph is called in a trace. A node keeps the last name that the
// library gave it, followed by its layer; where one name stands for several, the operation tells.
struct PointName {
  const char* node;
  ggml_op op;  // GGML_OP_NONE: any
  const char* point;
};
constexpr PointName kPointNames[] = {
    {"embd", GGML_OP_NONE, "embedding"},
    {"inp_embd", GGML_OP_NONE, "embedding"},
    {"inp_scaled", GGML_OP_NONE, "embedding"},
    {"attn_norm", GGML_OP_NONE, "attn_norm"},
    {"Qcur", GGML_OP_MUL_MAT, "attn_q"},
    {"Qcur", GGML_OP_ADD, "attn_q"},
    {"Qcur", GGML_OP_ROPE, "attn_q.rope"},
    {"Qcur_normed", GGML_OP_MUL, "attn_q.norm"},
    {"Kcur", GGML_OP_MUL_MAT, "attn_k"},
    {"Kcur", GGML_OP_ADD, "attn_k"},
    {"Kcur", GGML_OP_ROPE, "attn_k.rope"},
    {"Kcur_normed", GGML_OP_MUL, "attn_k.norm"},
    {"Vcur", GGML_OP_MUL_MAT, "attn_v"},
    {"Vcur", GGML_OP_ADD, "attn_v"},
    {"kqv_out", GGML_OP_NONE, "attention"},
    {"attn_sub_norm", GGML_OP_NONE, "attention.norm"},
    {"attn_out", GGML_OP_MUL_MAT, "attn_output"},
    {"ffn_inp", GGML_OP_NONE, "attn_out"},
    {"ffn_norm", GGML_OP_NONE, "ffn_norm"},
    {"ffn_gate_par", GGML_OP_NONE, "ffn_act"},
    {"ffn_swiglu", GGML_OP_NONE, "ffn_act"},
    {"ffn_geglu", GGML_OP_NONE, "ffn_act"},
    {"ffn_reglu", GGML_OP_NONE, "ffn_act"},
    {"ffn_sub_out", GGML_OP_NONE, "ffn_act"},
    {"ffn_sub_norm", GGML_OP_NONE, "ffn_act.norm"},
    {"l_out", GGML_OP_NONE, "ffn_out"},
    {"result_norm", GGML_OP_NONE, "output_norm"},
};

// bool, but int in some forks.
using NodeAnswer =
    decltype(std::declval<ggml_backend_sched_eval_callback>()(nullptr, false, nullptr));

// Returns the name of a node's point, null for a node that has none; -1 for no layer.
const char* point_name(const ggml_tensor& node, std::int32_t& layer) {
  std::string name = node.name;
  const std::size_t dash = name.rfind('-');
  layer = -1;
  if (dash != std::string::npos) {
    layer = std::atoi(name.c_str() + dash + 1);
    name.resize(dash);
  }
  for (const PointName& known : kPointNames) {
    if (name == known.node && (known.op == GGML_OP_NONE || known.op == node.op)) return known.point;
  }
  return nullptr;
}

class Reference {
 public:
  Reference(const char* path, std::uint32_t context, int threads, bool f32_cache, bool trace) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
#ifdef QSF_LLAMA_MODEL_LOAD
    model_ = llama_model_load_from_file(path, model_params);
#else
    model_ = llama_load_model_from_file(path, model_params);
#endif
    if (model_ == nullptr) refuse(std::string("cannot load ") + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = context;
    params.n_batch = context;
    params.n_threads = threads;
    params.n_threads_batch = threads;
    params.type_k = f32_cache ? GGML_TYPE_F32 : GGML_TYPE_F16;
    params.type_v = params.type_k;
#ifdef QSF_LLAMA_FLASH_TYPE
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
#else
    params.flash_attn = false;
#endif
    if (trace) {
      params.cb_eval = on_node;
      params.cb_eval_user_data = this;
#ifdef QSF_LLAMA_ROPE_TYPE
      in_pairs_ = llama_model_rope_type(model_) == LLAMA_ROPE_TYPE_NORM;
#else
      in_pairs_ = llama_rope_type(model_) == LLAMA_ROPE_TYPE_NORM;
#endif
    }
    kv_type_ = f32_cache ? "f32" : "f16";
    context_ = make_context(params);
    if (context_ == nullptr && f32_cache) {
      // Some forks take values in f16 alone without flash attention.
      params.type_v = GGML_TYPE_F16;
      kv_type_ = "f32 keys, f16 values";
      context_ = make_context(params);
    }
    if (context_ == nullptr) refuse("cannot make a context of " + std::to_string(context));
    n_context_ = llama_n_ctx(context_);
    n_vocab_ = vocabulary();
  }

  void hello() const {
    send(kHello, "{\"protocol\": 1, \"name\": \"" QSF_LLAMA_NAME
                 "\", \"commit\": \"" QSF_LLAMA_COMMIT "\", \"trace\": " QSF_LLAMA_TRACES
                 ", \"n_vocab\": " +
                     std::to_string(n_vocab_) + ", \"n_context\": " + std::to_string(n_context_) +
                     ", \"kv_type\": \"" + kv_type_ + "\", \"system\": \"" +
                     escaped(llama_print_system_info()) + "\"}");
  }

  void tokenize(const std::string& request) const {
    if (request.size() < 4) refuse("a request to tokenize without flags");
    const bool parse_special = u32_at(request, 0) != 0;
    const char* const text = request.data() + 4;
    const auto n_bytes = static_cast<std::int32_t>(request.size() - 4);
    std::vector<llama_token> tokens(request.size() + 16);
    const auto n_places = static_cast<std::int32_t>(tokens.size());
#ifdef QSF_LLAMA_VOCAB
    const llama_vocab* const from = llama_model_get_vocab(model_);
#else
    const llama_model* const from = model_;
#endif
    const std::int32_t n =
        llama_tokenize(from, text, n_bytes, tokens.data(), n_places, true, parse_special);
    if (n < 0) refuse("cannot tokenize the text");
    send(kTokens, std::string(reinterpret_cast<const char*>(tokens.data()),
                              static_cast<std::size_t>(n) * sizeof(llama_token)));
  }

  void evaluate(const std::string& request) {
    if (request.size() < 8) refuse("a request to evaluate without a place");
    const std::uint32_t n_past = u32_at(request, 0);
    const std::uint32_t n = u32_at(request, 4);
    if (request.size() != 8 + std::size_t{4} * n || n == 0) refuse("a request of another size");
    if (std::uint64_t{n_past} + n > n_context_)
      refuse("more tokens than the context has positions");
    if (n_past == 0) forget();
    llama_batch batch = llama_batch_init(static_cast<std::int32_t>(n), 0, 1);
    batch.n_tokens = static_cast<std::int32_t>(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t token = u32_at(request, 8 + 4 * i);
      if (token >= n_vocab_) refuse("token " + std::to_string(token) + " is not in the vocabulary");
      batch.token[i] = static_cast<llama_token>(token);
      batch.pos[i] = static_cast<llama_pos>(n_past + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    n_rows_ = n;
    const int failure = llama_decode(context_, batch);
    if (failure != 0) refuse("llama_decode failed with " + std::to_string(failure));
    for (std::uint32_t i = 0; i < n; ++i) {
      const float* const logits = llama_get_logits_ith(context_, static_cast<std::int32_t>(i));
      if (logits == nullptr) refuse("no logits of row " + std::to_string(i));
      const std::uint32_t shape[2] = {i, n_vocab_};
      const Header header = {kMagic, kLogits, sizeof shape + n_vocab_ * sizeof(float)};
      write_all(&header, sizeof header);
      write_all(shape, sizeof shape);
      write_all(logits, n_vocab_ * sizeof(float));
    }
    llama_batch_free(batch);
  }

 private:
  // Called twice for each node: whether it is wanted, and when its values are there.
  static NodeAnswer on_node(ggml_tensor* node, bool ask, void* self) {
    std::int32_t layer = -1;
    const char* const name = point_name(*node, layer);
    if (ask) return name != nullptr;
    if (name != nullptr) static_cast<const Reference*>(self)->send_point(*node, name, layer);
    return true;
  }

  // Sends a row of a node's values for each token of the pass. A graph that leaves out rows, or
  // holds other numbers than f32, has no such point.
  void send_point(const ggml_tensor& node, const std::string& name, std::int32_t layer) const {
    const auto n_values = static_cast<std::size_t>(ggml_nelements(&node));
    if (n_rows_ == 0 || n_values % n_rows_ != 0 || node.type != GGML_TYPE_F32) return;
    if (!ggml_is_contiguous(&node)) return;
    std::vector<float> values(n_values);
    std::memcpy(values.data(), node.data, n_values * sizeof(float));
    const bool heads = name.rfind("attn_q", 0) == 0 || name.rfind("attn_k", 0) == 0;
    if (heads && in_pairs_) to_halves(values);
    // Behind the last layer, where the library counts none.
    if (name == "output_norm") layer = static_cast<std::int32_t>(number("block_count"));
    const auto n_rows = static_cast<std::uint32_t>(n_rows_);
    const auto n_cols = static_cast<std::uint32_t>(n_values / n_rows_);
    const std::uint32_t shape[4] = {static_cast<std::uint32_t>(layer), n_rows, n_cols,
                                    static_cast<std::uint32_t>(name.size())};
    std::string payload(reinterpret_cast<const char*>(shape), sizeof shape);
    payload += name;
    payload.append(reinterpret_cast<const char*>(values.data()), n_values * sizeof(float));
    send(kPoint, payload);
  }

  // Returns a number of the model's architecture from its file, 0 where it has none.
  std::size_t number(const std::string& key) const {
    char text[64] = {};
    if (llama_model_meta_val_str(model_, "general.architecture", text, sizeof text) < 0) return 0;
    const std::string name = std::string(text) + "." + key;
    if (llama_model_meta_val_str(model_, name.c_str(), text, sizeof text) < 0) return 0;
    return static_cast<std::size_t>(std::strtoull(text, nullptr, 10));
  }

  // The values of a head that are turned together stand side by side in this library's files of
  // some architectures; in a trace the first half of a head is turned with the second.
  void to_halves(std::vector<float>& values) const {
    std::size_t n = number("attention.key_length");
    if (n == 0) {
      n = number("embedding_length") / std::max<std::size_t>(1, number("attention.head_count"));
    }
    if (n < 2) refuse("the file does not say how many values a head has");
    std::vector<float> head(n);
    for (std::size_t at = 0; at + n <= values.size(); at += n) {
      for (std::size_t i = 0; i < n; ++i) head[i] = values[at + 2 * (i % (n / 2)) + i / (n / 2)];
      std::copy(head.begin(), head.end(), values.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  llama_context* make_context(const llama_context_params& params) const {
#ifdef QSF_LLAMA_MODEL_LOAD
    return llama_init_from_model(model_, params);
#else
    return llama_new_context_with_model(model_, params);
#endif
  }
  std::uint32_t vocabulary() const {
#ifdef QSF_LLAMA_VOCAB
    return static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_)));
#else
    return static_cast<std::uint32_t>(llama_n_vocab(model_));
#endif
  }
  void forget() {
#if defined(QSF_LLAMA_MEMORY)
    llama_memory_clear(llama_get_memory(context_), true);
#elif defined(QSF_LLAMA_KV_SELF)
    llama_kv_self_clear(context_);
#else
    llama_kv_cache_clear(context_);
#endif
  }

  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  std::string kv_type_;
  std::uint32_t n_context_ = 0;
  std::uint32_t n_vocab_ = 0;
  std::size_t n_rows_ = 0;  // tokens of the pass in work
  bool in_pairs_ = false;   // values of a head that are turned together are neighbours
};

void answer_requests(Reference& reference) {
  Header header;
  while (read_all(&header, sizeof header)) {
    if (header.magic != kMagic || header.bytes > kMaxRequestBytes) refuse("no request");
    std::string payload(header.bytes, '\0');
    if (!read_all(payload.data(), payload.size())) return;
    if (header.kind == kTokenize) {
      reference.tokenize(payload);
    } else if (header.kind == kEvaluate) {
      reference.evaluate(payload);
    } else {
      refuse("a request of kind " + std::to_string(header.kind));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_answers = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: %s MODEL.gguf --context N --threads N --kv-type f16|f32 [--trace 1]\n",
                 argv[0]);
    return 2;
  }
  std::uint32_t context = 512;
  int threads = 1;
  bool f32_cache = false;
  bool trace = false;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--context") context = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (name == "--threads") threads = std::atoi(argv[i + 1]);
    if (name == "--trace") trace = std::atoi(argv[i + 1]) != 0;
    if (name == "--kv-type") f32_cache = std::string(argv[i + 1]) == "f32";
  }
  llama_backend_init();
  Reference reference(argv[1], context, threads, f32_cache, trace);
  reference.hello();
  answer_requests(reference);
  return 0;
}
