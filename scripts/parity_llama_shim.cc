// SPDX-License-Identifier: MIT
//
// The reference of qsf-parity: llama.cpp, or a fork of it, in a program of its own.
//
//   qsf-parity-llama MODEL.gguf --context N --threads N --kv-type f16|f32
//
// It says hello on standard output, then answers what comes on standard input until that ends;
// docs/parity.md has the protocol. scripts/build_parity_shim compiles it against the header of the
// tree that it is linked with, since structs of that library are passed by value and change with
// every version, and defines which of the functions that changed their names the header has:
//
//   QSF_LLAMA_VOCAB       tokens belong to a llama_vocab, not to the model
//   QSF_LLAMA_MODEL_LOAD  llama_model_load_from_file and llama_init_from_model
//   QSF_LLAMA_MEMORY      llama_memory_clear; QSF_LLAMA_KV_SELF llama_kv_self_clear
//   QSF_LLAMA_FLASH_TYPE  flash_attn_type instead of flash_attn

#include <llama.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifndef QSF_LLAMA_COMMIT
#define QSF_LLAMA_COMMIT "unknown"
#endif
#ifndef QSF_LLAMA_NAME
#define QSF_LLAMA_NAME "llama.cpp"
#endif

namespace {

constexpr std::uint32_t kMagic = 0x50465351;  // "QSFP"
enum Kind : std::uint32_t {
  kHello = 1,
  kTokenize = 2,
  kTokens = 3,
  kEvaluate = 4,
  kLogits = 5,
  kRefusal = 6
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

class Reference {
 public:
  Reference(const char* path, std::uint32_t context, int threads, bool f32_cache) {
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
                 "\", \"commit\": \"" QSF_LLAMA_COMMIT "\", \"n_vocab\": " +
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
    std::fprintf(stderr, "usage: %s MODEL.gguf --context N --threads N --kv-type f16|f32\n",
                 argv[0]);
    return 2;
  }
  std::uint32_t context = 512;
  int threads = 1;
  bool f32_cache = false;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--context") context = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (name == "--threads") threads = std::atoi(argv[i + 1]);
    if (name == "--kv-type") f32_cache = std::string(argv[i + 1]) == "f32";
  }
  llama_backend_init();
  Reference reference(argv[1], context, threads, f32_cache);
  reference.hello();
  answer_requests(reference);
  return 0;
}
