# SPDX-License-Identifier: MIT
"""The types of llama.cpp and ik_llama.cpp that compare_with_peers.py measures, and how their llama-quantize is told of
them. ik_llama.cpp is a fork of llama.cpp with types of its own."""

LLAMA_CPP, IK = "llama.cpp", "ik_llama.cpp"

# Whole files: what llama-quantize calls the mix, and the type of the embedding where it is not the mix's own choice. Rows
# that are no multiple of 256 get other types, wider ones, and sizes come out closer to each other than names.
WHOLE = {
    LLAMA_CPP: [("Q2_0", ""), ("Q2_0", "iq4_nl"), ("IQ1_M", "iq4_nl"), ("IQ2_XXS", "iq4_nl"), ("IQ2_M", "iq4_nl"),
                ("IQ3_XXS", "iq4_nl"), ("IQ4_XS", "iq4_nl"), ("IQ1_M", ""), ("IQ2_M", ""), ("Q2_K_S", ""), ("Q2_K", ""),
                ("IQ3_XXS", ""), ("Q3_K_S", ""), ("Q3_K_M", ""), ("IQ4_XS", ""), ("Q4_K_M", "")],
    IK: [("IQ2_KT", "iq4_nl"), ("IQ3_KT", "iq4_nl"), ("IQ2_KT", ""), ("IQ2_K", ""), ("IQ2_KL", ""), ("IQ3_KT", ""),
         ("IQ3_K", ""), ("IQ4_KT", "")]}

# ffn_down alone: a type, or two of which the second is that of the layers that llama.cpp's mixes widen.
FFN_DOWN = {
    LLAMA_CPP: ["IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "Q2_K", "IQ3_XXS", "IQ3_S", "Q3_K", "IQ4_XS", "Q4_K",
                "IQ2_XXS + IQ3_XXS"],
    IK: ["IQ2_KT", "IQ2_KS", "IQ2_K", "IQ2_KL", "IQ3_KT", "IQ3_KS", "IQ3_K", "IQ4_KT", "IQ4_KS", "IQ4_K",
         "IQ2_KT + IQ3_KT", "IQ3_KT + IQ4_KT"]}
OTHER_MATRICES = "attn_(q|k|v|output)|ffn_(gate|up)"


def name_of_type(kind):
    """Returns what GGML calls a type: q4_K, and iq4_k, of which case tells one from the other."""
    return kind[0].lower() + kind[1:] if kind.startswith("Q") else kind.lower()


def wide_layers(n_layers):
    """The layers that llama.cpp's own mixes give more bits (use_more_bits())."""
    eighth = n_layers // 8
    return [i for i in range(n_layers) if i < eighth or i >= 7 * n_layers // 8 or (i - eighth) % 3 == 2]


def ffn_down_rules(kinds, n_layers, name=name_of_type):
    """Returns (regular expression, type) for the matrices of `kinds`: a type, or two with " + " between them."""
    parts = kinds.split(" + ")
    layers = "|".join(str(i) for i in wide_layers(n_layers))
    return [(rf"blk\.({layers})\.ffn_down", name(kind)) for kind in parts[1:]] + [("ffn_down", name(parts[0]))]


def rule_options(by, rules):
    """Returns the options of llama-quantize that give matrices types by name; the first rule that fits counts."""
    if by == IK:
        return ["--custom-q", ",".join(f"{pattern}={kind}" for pattern, kind in rules)]
    return [word for pattern, kind in rules for word in ("--tensor-type", f"{pattern}={kind}")]


def whole_options(kind, embedding):
    """Returns options before the files and the name of the mix after them."""
    return (["--token-embedding-type", embedding] if embedding else []), kind


def ffn_down_options(by, kinds, n_layers):
    """As whole_options(). All else is f16; the mix Q4_0 is named for its being one that looks at rules at all."""
    rules = [*ffn_down_rules(kinds, n_layers), (OTHER_MATRICES, "f16")]
    return ["--token-embedding-type", "f16", "--output-tensor-type", "f16", *rule_options(by, rules)], "Q4_0"
