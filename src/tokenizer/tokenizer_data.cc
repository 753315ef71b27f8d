// SPDX-License-Identifier: MIT
//
// Writes TokenizerData as a tokenizer section, then reads it back as the engine will.

#include "tokenizer/tokenizer_data.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/bytes.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_section.h"
#include "tokenizer/vocab_index.h"

namespace qsf {

namespace {

std::uint32_t section_flags(const TokenizerData& data) noexcept {
  std::uint32_t flags = 0;
  if (data.add_bos) flags |= kSectionAddBos;
  if (data.add_eos) flags |= kSectionAddEos;
  if (data.byte_fallback) flags |= kSectionByteFallback;
  if (data.fuse_unknown) flags |= kSectionFuseUnknown;
  if (data.ignore_merges) flags |= kSectionIgnoreMerges;
  if (data.strip_leading_space) flags |= kSectionStripLeadingSpace;
  if (data.unescape_spaces) flags |= kSectionUnescapeSpaces;
  if (data.nfc) flags |= kSectionNfc;
  return flags;
}

std::uint32_t added_flags(const AddedToken& token) noexcept {
  std::uint32_t flags = 0;
  if (token.special) flags |= kAddedSpecial;
  if (token.normalized) flags |= kAddedNormalized;
  if (token.left_strip) flags |= kAddedLeftStrip;
  if (token.right_strip) flags |= kAddedRightStrip;
  if (token.single_word) flags |= kAddedSingleWord;
  return flags;
}

// Returns the added tokens in the order of the section, one per text and stage.
std::vector<const AddedToken*> sorted_added(const TokenizerData& data) {
  std::vector<const AddedToken*> sorted;
  sorted.reserve(data.added.size());
  for (const AddedToken& token : data.added) sorted.push_back(&token);
  const auto key_less = [](const AddedToken* a, const AddedToken* b) {
    return a->normalized != b->normalized ? b->normalized : a->text < b->text;
  };
  std::stable_sort(sorted.begin(), sorted.end(), key_less);
  const auto same_key = [](const AddedToken* a, const AddedToken* b) {
    return a->normalized == b->normalized && a->text == b->text;
  };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same_key), sorted.end());
  return sorted;
}

Status check_sizes(const TokenizerData& data, std::uint64_t* n_token_bytes) {
  if (data.tokens.size() > kMaxVocabTokens || data.merges.size() > kMaxMerges ||
      data.added.size() > kMaxAdded || data.steps.size() > kMaxSteps ||
      data.stop_ids.size() > kMaxStopIds) {
    return unsupported(
        "tokenizer: %zu tokens, %zu merges, %zu added tokens, %zu steps, %zu stop ids: expected at "
        "most %u, %u, %u, %u, %u",
        data.tokens.size(), data.merges.size(), data.added.size(), data.steps.size(),
        data.stop_ids.size(), kMaxVocabTokens, kMaxMerges, kMaxAdded, kMaxSteps, kMaxStopIds);
  }
  *n_token_bytes = 0;
  for (const VocabToken& token : data.tokens) *n_token_bytes += token.text.size();
  std::uint64_t n_string_bytes = 0;
  for (const AddedToken& token : data.added) n_string_bytes += token.text.size();
  for (const TextStep& step : data.steps)
    n_string_bytes += step.text.size() + step.replacement.size();
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  if (*n_token_bytes > kMax || n_string_bytes > kMax) {
    return unsupported("tokenizer: more than 4 GiB of token text");
  }
  return ok_status();
}

class SectionWriter {
 public:
  explicit SectionWriter(const TokenizerData& data) : data_(data) {}

  std::vector<std::byte> run(std::uint32_t n_token_bytes) {
    const std::vector<const AddedToken*> added = sorted_added(data_);
    write_header(added.size(), n_token_bytes);
    write_vocabulary();
    for (const AddedToken* token : added) {
      write_string(token->text);
      out_.write<std::uint32_t>(token->id);
      out_.write<std::uint32_t>(added_flags(*token));
    }
    for (const TextStep& step : data_.steps) write_step(step);
    for (const TokenId id : data_.stop_ids) out_.write<std::uint32_t>(id);
    for (const VocabToken& token : data_.tokens) {
      out_.write<std::uint8_t>(static_cast<std::uint8_t>(token.type));
    }
    for (const VocabToken& token : data_.tokens) out_.write_text(token.text);
    out_.write_text(strings_);
    store_le<std::uint32_t>(out_.bytes(), 52, static_cast<std::uint32_t>(strings_.size()));
    return std::move(out_.bytes());
  }

 private:
  void write_header(std::size_t n_added, std::uint32_t n_token_bytes) {
    out_.write_text(std::string_view(kSectionMagic, sizeof kSectionMagic));
    out_.write<std::uint16_t>(kSectionVersion);
    out_.write<std::uint8_t>(static_cast<std::uint8_t>(data_.kind));
    out_.write<std::uint8_t>(0);
    out_.write<std::uint32_t>(section_flags(data_));
    for (const std::size_t count : {data_.tokens.size(), data_.merges.size(), n_added,
                                    data_.steps.size(), data_.stop_ids.size()}) {
      out_.write<std::uint32_t>(static_cast<std::uint32_t>(count));
    }
    for (const TokenId id : {data_.bos, data_.eos, data_.pad, data_.unk}) {
      out_.write<std::uint32_t>(id);
    }
    out_.write<std::uint32_t>(n_token_bytes);
    out_.write<std::uint32_t>(0);  // string bytes, stored when they are known
    out_.write<std::uint64_t>(0);
  }

  void write_vocabulary() {
    std::uint32_t offset = 0;
    out_.write<std::uint32_t>(0);
    for (const VocabToken& token : data_.tokens) {
      offset += static_cast<std::uint32_t>(token.text.size());
      out_.write<std::uint32_t>(offset);
    }
    for (const MergeRule& rule : data_.merges) {
      out_.write<std::uint32_t>(rule.left);
      out_.write<std::uint32_t>(rule.right);
      out_.write<std::uint32_t>(rule.result);
    }
    if (data_.kind == TokenizerKind::kScoredBpe) {
      for (const VocabToken& token : data_.tokens) out_.write<float>(token.score);
    }
  }

  void write_step(const TextStep& step) {
    std::uint8_t flags = 0;
    if (step.first_only) flags |= kStepFirstOnly;
    if (step.unless_present) flags |= kStepUnlessPresent;
    if (step.invert) flags |= kStepInvert;
    out_.write<std::uint8_t>(static_cast<std::uint8_t>(step.op));
    out_.write<std::uint8_t>(static_cast<std::uint8_t>(step.stage));
    out_.write<std::uint8_t>(static_cast<std::uint8_t>(step.behavior));
    out_.write<std::uint8_t>(flags);
    write_string(step.text);
    write_string(step.replacement);
    out_.write<std::uint32_t>(0);
  }

  void write_string(std::string_view text) {
    out_.write<std::uint32_t>(static_cast<std::uint32_t>(strings_.size()));
    out_.write<std::uint32_t>(static_cast<std::uint32_t>(text.size()));
    strings_ += text;
  }

  const TokenizerData& data_;
  ByteWriter out_;
  std::string strings_;
};

}  // namespace

Result<std::vector<std::byte>> write_tokenizer_section(const TokenizerData& data) {
  std::uint64_t n_token_bytes = 0;
  QSF_RETURN_IF_ERROR(check_sizes(data, &n_token_bytes));
  std::vector<std::byte> bytes = SectionWriter(data).run(static_cast<std::uint32_t>(n_token_bytes));
  // Run all checks of the engine on the result, so that no invalid section is written.
  Result<SectionView> view = SectionView::parse(bytes);
  if (!view) return invalid_argument("%s", view.error().message().c_str());
  for (std::uint32_t i = 0; i < view->n_steps(); ++i) {
    if (view->step(i).op != TextOp::kSplit) continue;
    Result<Splitter> splitter = Splitter::compile(view->step(i));
    if (!splitter) return std::move(splitter).error();
  }
  std::vector<std::byte> memory(VocabIndex::bytes_needed(*view));
  Result<VocabIndex> index = VocabIndex::build(*view, memory);
  if (!index) return invalid_argument("%s", index.error().message().c_str());
  return bytes;
}

}  // namespace qsf
