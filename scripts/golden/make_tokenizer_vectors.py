#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes testdata/tokenizer/: small trained tokenizers and what their own libraries make of texts.

Needs the packages `tokenizers` and `sentencepiece`. The committed files are what tests read; run
this only to add cases, and review what changes:

    scripts/golden/make_tokenizer_vectors.py [--only FOLDER ...] [--model NAME=PATH/tokenizer.model ...]

--only makes the named folders and leaves the others as they are: the trainer breaks ties at random, so
that the same command trains the tokenizers with byte fallback anew, a little differently.
--model adds the ids of a SentencePiece model that stands elsewhere (vectors only).
"""

import argparse
import io
import json
import pathlib
import random
import unicodedata

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "tokenizer"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
ARCADE = QWEN2.replace("| ?[^", "|[ ]?[^")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"

PARAGRAPHS = [
    "The old house stood at the end of the road, and nobody had lived there for twenty years.",
    "\"Where are you going?\" she asked. \"I'm going home,\" he said; they'd never met again.",
    "In 1984 the price was 3.50, in 2024 it was 1,234,567.89 for every 100 of them.",
    "def main(args):\n    for i in range(10):\n        print(i, args[i])\n\n    return 0\n",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund, w\u00e4hrend die Gr\u00f6\u00dfe \u00fcbrig bleibt.",
    "\u0411\u044b\u0441\u0442\u0440\u0430\u044f \u043b\u0438\u0441\u0430 \u043f\u0440\u044b\u0433\u0430\u0435\u0442 \u0447\u0435\u0440\u0435\u0437 \u043b\u0435\u043d\u0438\u0432\u0443\u044e \u0441\u043e\u0431\u0430\u043a\u0443.",
    "\u6211\u60f3\u5728\u5bb6\u91cc\u5de5\u4f5c\uff0c\u56e0\u4e3a\u5bb6\u91cc\u5f88\u5b89\u9759\u3002",
    "Once upon a time there was a little girl who lived with her mother near the forest.",
    "They've said we'll see it's what he'd done, and I'm sure you're right, don't you think?",
]

TEXTS = [
    "", " ", "  ", "   ", "    ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", "\r\n", " \n ", "\n \n", "a", " a",
    "a ", "  a", "a  ", "Hello world", " Hello world", "Hello World!", " Hello,  world !", "Hello\nworld",
    "Hello \n world", "Hello\r\n\r\nworld", "I'm here", "I'M HERE", "they've we'll 'tis rock'n'roll",
    "don''t", "'", "''", "3", "33", "333", "3333", "33333", "3.14159", "1,234,567.89", "v2.0.1-rc3",
    "\u0664\u0665\u0666 \u00bd \u2167 \u00b2", "w048 7tuijk dsdfhu", "na\u00efve caf\u00e9", "\u00dcber Gr\u00f6\u00dfe",
    "\u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438", "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\u3002", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1780\u17b6\u1793\u17cb\u178f\u17c2",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f680", "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f (multiple) \u2705", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301", "\u00e9", "A\u030a", "x\u200by", "\ufeffbom", "\u00a0nbsp\u00a0", "\u2003em\u2003space", "\u3000wide",
    "\x00", "a\x00b", "\x01\x02\x7f", "\x85", "\u2028line\u2029para", "\ufffd", "\uffff", "\U0010ffff",
    "<s>", "</s>", "<unk>", "a<s>b", "<0x0A>", "<|endoftext|>", "one<|endoftext|>two", "<|user|>  \n hi",
    " <|user|> ", "<|user|><|user|>", "<tool>", "a <tool> b", "a<tool>b", " <tool>", "<tool><tool>", "<tools>",
    "\u2581", "a\u2581b", "\u2581\u2581a", "------=======", "''''''```````\"\"\"\"......!!!!!!??????", "!!!!!!", "$+<=>^~|`",
    "for (int i = 0; i < n; ++i) {\n\treturn x[i]->y;\n}\n", "https://example.org/a?b=c&d=%20#e",
    "the the the thethethe", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 40, " " * 33, "x" + " " * 9 + "y", "\n" * 9,
    "The old house stood at the end of the road.", "springt \u00fcber den faulen Hund", "near\u00a0the forest",
]


def more_texts(count):
    rng = random.Random(20240611)
    words = " ".join(PARAGRAPHS).split(" ")
    odd = [" ", "  ", "\n", "\t", "'s", "12", "\u00e9", "\u4e16", "\U0001f600", "\u0301", "<tool>", "<|user|>", "...", "\u200d"]
    texts = []
    for _ in range(count):
        parts = [rng.choice(words if rng.random() < 0.6 else odd) for _ in range(rng.randint(1, 12))]
        texts.append(rng.choice(["", " "]).join(parts))
    planes = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x5FF), (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xACFF),
              (0x1F300, 0x1F6FF), (0x20000, 0x200FF)]
    for _ in range(count):
        texts.append("".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(1, 20))))
    return texts


ALL_TEXTS = TEXTS + more_texts(20)


def decomposed_texts():
    """Texts that normal form C changes, and some near it."""
    rng = random.Random(7)
    marks = "\u0300\u0301\u0308\u0323\u0315\u0327\u0345\u034f\u3099\u0f71\u1161\u11a8\u11a7"
    texts = [unicodedata.normalize("NFD", t) for t in ALL_TEXTS + PARAGRAPHS]
    texts = [t for t in texts if unicodedata.normalize("NFC", t) != t]
    texts += ["\u212b \u2126 \u0958", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u0928\u093c", "\ufb1d \u2adc", "a\u0315\u0300\u05ae\u0062"]
    for _ in range(30):
        texts.append("".join(rng.choice("aeoAE \u00e9\u304b\u1100\uac00\u1e69<") + "".join(
            rng.choice(marks) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 6))))
    return texts


ONLY = []  # folders to write; empty: all


def write(folder, name, content):
    if ONLY and folder not in ONLY:
        return
    path = OUT / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))


def write_cases(folder, cases):
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, sort_keys=True) for case in cases)
    write(folder, "cases.json", "{\"cases\": [\n" + lines + "\n]}\n")


def add_tokens(tokenizer):
    tokenizer.add_special_tokens([
        AddedToken("<|endoftext|>", special=True, normalized=False),
        AddedToken("<|user|>", special=True, normalized=False, rstrip=True),
    ])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True, lstrip=True, single_word=False)])
    tokenizer.add_tokens([AddedToken("thethe", normalized=False, single_word=True)])


def special(*contents, **flags):
    return [AddedToken(content, special=True, normalized=False, **flags) for content in contents]


def strings_for_merges(data):
    """The older form of tokenizer.json, in which published files of the time are."""
    data["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]


def save_hf(folder, tokenizer, edits=(), texts=None, tokens=None):
    if tokens is None:
        add_tokens(tokenizer)
    else:
        tokenizer.add_special_tokens([t for t in tokens if t.special])
        tokenizer.add_tokens([t for t in tokens if not t.special])
    data = json.loads(tokenizer.to_str())
    for edit in edits:
        edit(data)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    write(folder, "tokenizer.json", json.dumps(data, ensure_ascii=True, indent=None, separators=(",", ":")) + "\n")
    cases = []
    for text in texts or ALL_TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    write_cases(folder, cases)
    return tokenizer


def byte_level(folder, pre_tokenizer, vocab_size, normalizer=None, ignore_merges=False, bos=False, texts=None,
               first=(), tokens=None, edits=()):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<s>"] if bos else list(first))
    tokenizer.train_from_iterator(PARAGRAPHS, trainer)
    if bos:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    return save_hf(folder, tokenizer, edits, texts, tokens)


def ranked(folder, vocab_size, normalizer, pre_tokenizer, decoder, byte_fallback=True, eos=False,
           control=("<unk>", "<s>", "</s>"), tokens=None, edits=()):
    control = list(control)
    bos_token = next(t for t in control if t in ("<s>", "<bos>"))
    byte_tokens = ["<0x%02X>" % i for i in range(256)] if byte_fallback else []
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, limit_alphabet=90,
                                  special_tokens=control + byte_tokens, max_token_length=12)
    tokenizer.train_from_iterator(PARAGRAPHS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if eos else bos_token + " $A",
        special_tokens=[(t, i) for i, t in enumerate(control) if t in ("<s>", "</s>", "<bos>")])

    def drop_byte_tokens(data):
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in byte_tokens]

    return save_hf(folder, tokenizer, [drop_byte_tokens, *edits], tokens=tokens)


def sp_cases(processor, texts):
    cases = []
    for text in texts:
        ids = processor.encode(text)
        cases.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
    return cases


def spm(folder, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for p in PARAGRAPHS for line in p.split("\n") if line] * 3), model_writer=model,
        model_type="bpe", normalization_rule_name="identity", num_threads=1, minloglevel=2, **options)
    write(folder, "tokenizer.model", model.getvalue())
    # Where spaces are collapsed, SentencePiece trims a literal U+2581 like a space; QSF does not.
    texts = [t for t in ALL_TEXTS if options.get("remove_extra_whitespaces") is False or "\u2581" not in t]
    write_cases(folder, sp_cases(sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), texts))


def write_config(folder, **members):
    write(folder, "tokenizer_config.json", json.dumps(members) + "\n")


def opt():
    """GPT-2's files without a tokenizer.json, special tokens in front, </s> as BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    front = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(PARAGRAPHS, trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=front))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] in ("</s>", "<pad>")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    write("opt", "vocab.json", json.dumps(data["model"]["vocab"], ensure_ascii=True) + "\n")
    strings_for_merges(data)
    write("opt", "merges.txt", "#version: 0.2\n" + "\n".join(data["model"]["merges"]) + "\n")
    end = {"__type": "AddedToken", "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    write_config("opt", tokenizer_class="GPT2Tokenizer", add_prefix_space=False, add_bos_token=True, bos_token=end,
                 eos_token=end, unk_token=end, pad_token={**end, "content": "<pad>"})
    cases = []
    for text in ALL_TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    write_cases("opt", cases)


BERT_TEXTS = [
    "unaffable", "UNAFFABLE!", "Stra\u00dfe STRASSE \u1e9e", "\u0130stanbul \u0131 I \u0130", "A\u0301\u0300e\u0323\u0301z",
    "\u212b \u2126 \u0958 \uac00\ud55c", "soft\u00adhyphen", "zero\u200bwidth\u200d joiner\ufeff", "tab\tline\nfeed\x0bform\x0cx",
    "a\x00b\x01c\x7fd\x85e\x9f", "\u6211a\u60f3b", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\U00020000\U0002b820\U0002b920",
    "\u2014dash\u2013en\u2026", "\u00a1hola! \u00bfqu\u00e9?", "$9.99 + 5% = ^x~ `y` |z|", "\u20ac5 \u00a35 \u00a9", "x" * 99, "x" * 100,
    "x" * 101, "\u00e9" * 100, "\u00e9" * 101, ("a" * 120) + " house", "don't they'd", "[CLS] house [SEP]", "[cls]", "[UNK]",
    "[MASK]s the [MASK].", "[PAD]", "##house", "house##s", "[ CLS ]", "\ufffdhouse\ufffd", "\ue000private\uf8ff",
    "\U0001f600house\U0001f600", "\u1100\u1161\u11a8 \u11a7", "\u0928\u093f \u0e01\u0e33", "\ufb01ne \uff21\uff22 \u2163", "\u03a3\u039f\u03a6\u039f\u03a3",
    "a\u302e\U0001d165", "\u0345\u0301", "\u0301house", " \u00a0\u2003house\u3000\u2028road\u2029", "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u1e9b\u0323", "the\u180eroad", "\u061cmark\u2066iso\u2069", "\U000e0041tag", "\u0f0bx\u0f0d", "\u3001\u3002\u300c", "_under_score_",
]


def word_pieces(folder, **normalizer):
    """A WordPiece vocabulary, of tokenizer.json and vocab.txt."""
    control = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)  # which published files have: of English alone
    letters = "abcdefghijklmnopqrstuvwxyz\u00e9\u00df\u0131i\u0307\u03c3\u03bf\u03c6\u05e9\u05dc\u1112\u1161\u11ab\u093f\u0928\u11a7\u302e\u00e0"
    tokenizer.train_from_iterator(PARAGRAPHS, trainers.WordPieceTrainer(
        vocab_size=520, show_progress=False, special_tokens=control, initial_alphabet=list(letters)))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    saved = save_hf(folder, tokenizer, texts=ALL_TEXTS + decomposed_texts() + BERT_TEXTS, tokens=[])
    vocabulary = saved.get_vocab()
    write(folder, "vocab.txt", "".join(text + "\n" for text in sorted(vocabulary, key=vocabulary.get)))
    write_config(folder, tokenizer_class="BertTokenizer", do_lower_case=normalizer["lowercase"], cls_token="[CLS]",
                 sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")


def families():
    """One folder for each pipeline that a supported architecture is published with."""
    split = pre_tokenizers.Split
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    opt()
    byte_level("bloom", pre_tokenizers.Sequence([split(Regex(BLOOM), "isolated"), bytes_only]), 380,
               first=["<unk>", "<s>", "</s>", "<pad>"], tokens=[], edits=[strings_for_merges],
               texts=ALL_TEXTS + ["a\u3002b\uff0c c \u0964\u06d4\u2026(x) [y] {z}", "( ) | [ ]", "a(b|c", "(((", "x, y. z! w?"])
    byte_level("phi2", pre_tokenizers.ByteLevel(add_prefix_space=False), 380, edits=[strings_for_merges],
               tokens=special("<|endoftext|>") + [AddedToken(" " * n, normalized=True) for n in range(31, 1, -1)] +
               [AddedToken("\t" * n, normalized=True) for n in range(9, 1, -1)],
               texts=ALL_TEXTS + ["\t" * n for n in range(12)] + ["x" + " " * n + "y" for n in range(35)])
    write_config("phi2", tokenizer_class="CodeGenTokenizer", add_prefix_space=False, bos_token="<|endoftext|>",
                 eos_token="<|endoftext|>", unk_token="<|endoftext|>")
    byte_level("stablelm2", pre_tokenizers.Sequence([split(Regex(ARCADE), "isolated"), bytes_only]), 380,
               tokens=special("<|endoftext|>", "<|fim_prefix|>", "<|im_start|>", "<|im_end|>", "<|reg0|>"))
    byte_level("smollm2", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)]), 380,
               first=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"], tokens=[])

    def end_is_text(data):
        for token in data["added_tokens"]:
            if token["content"] == "</s>":
                token.update(special=False, rstrip=True)

    llama = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
    escape = normalizers.Replace(" ", "\u2581")
    ranked("phi3", 540, normalizers.Sequence([normalizers.Prepend("\u2581"), escape]), None, llama,
           tokens=special("<|endoftext|>", "<|placeholder1|>") +
           special("<|assistant|>", "<|system|>", "<|end|>", "<|user|>", rstrip=True),
           edits=[end_is_text, strings_for_merges])
    write_config("phi3", tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=False, legacy=False,
                 bos_token="<s>", eos_token="<|endoftext|>", pad_token="<|endoftext|>", unk_token="<unk>")
    listed = ["<unused0>", "<unused1>", "<unused2>"]
    runs = ["\n" * n for n in range(1, 8)] + ["\u2581" * n for n in range(2, 8)] + ["<table>", "<h1>"]

    def runs_are_text(data):
        for token in data["added_tokens"]:
            token["special"] = token["special"] and token["content"] not in listed + runs

    ranked("gemma2", 560, escape, split(" ", "merged_with_previous"), decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]),
        control=["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *listed, "<start_of_turn>", "<end_of_turn>", *runs],
        tokens=[], edits=[runs_are_text])
    write_config("gemma2", tokenizer_class="GemmaTokenizer", add_bos_token=True, add_eos_token=False, bos_token="<bos>",
                 eos_token="<eos>", pad_token="<pad>", unk_token="<unk>",
                 additional_special_tokens=["<start_of_turn>", "<end_of_turn>"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    arguments = parser.parse_args()
    ONLY.extend(arguments.only)

    split = pre_tokenizers.Split
    gpt2 = byte_level("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), 400)
    data = json.loads(gpt2.to_str())
    write("gpt2", "vocab.json", json.dumps(data["model"]["vocab"], ensure_ascii=True) + "\n")
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    write("gpt2", "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    write("gpt2", "added_tokens.json", json.dumps({t["content"]: t["id"] for t in data["added_tokens"]}) + "\n")
    byte_level("gpt2_prefix", pre_tokenizers.ByteLevel(add_prefix_space=True), 300)
    byte_level("llama3", pre_tokenizers.Sequence([
        split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 450,
        ignore_merges=True, bos=True)
    byte_level("qwen2", pre_tokenizers.Sequence([
        split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 380,
        normalizer=normalizers.NFC(), texts=ALL_TEXTS + decomposed_texts())
    byte_level("falcon", pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split(Regex("[0-9][0-9][0-9]"), "isolated")]), 380)
    byte_level("splits", pre_tokenizers.Sequence([
        split(Regex(r"[\r\n]"), "isolated"), split(".", "merged_with_previous"), split(Regex("[A-Z]"), "merged_with_next"),
        split(Regex(r"[^[ou]]"), "contiguous"), split(Regex(r"\s+$"), "isolated"), split(Regex(r"\p{L}+"), "isolated", invert=True),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 340)
    llama = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
    escape = normalizers.Replace(" ", "\u2581")
    ranked("llama2", 560, normalizers.Sequence([normalizers.Prepend("\u2581"), escape]), None, llama)
    ranked("mistral", 500, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama, eos=True)
    ranked("metaspace", 540, None, pre_tokenizers.Metaspace(prepend_scheme="always"),
           decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]))
    ranked("gemma", 540, escape, split(" ", "merged_with_previous"), decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]))
    ranked("no_fallback", 300, None, pre_tokenizers.Metaspace(prepend_scheme="always"),
           decoders.Metaspace(prepend_scheme="always"), byte_fallback=False)
    spm("spm", vocab_size=480, byte_fallback=True, character_coverage=0.99, remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True)
    spm("spm_collapse", vocab_size=300, character_coverage=0.98, user_defined_symbols=["<tool>", "<tools>", "the"],
        pad_id=3)
    families()
    word_pieces("bert", lowercase=True)
    word_pieces("bert_cased", lowercase=False)
    for argument in arguments.model:
        name, path = argument.split("=", 1)
        texts = [t for i, t in enumerate(ALL_TEXTS) if i % 3 == 0 or i > len(ALL_TEXTS) - 10]
        write_cases(name, sp_cases(sentencepiece.SentencePieceProcessor(model_file=path), texts))


if __name__ == "__main__":
    main()
