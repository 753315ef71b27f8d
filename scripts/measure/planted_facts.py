# SPDX-License-Identifier: MIT
"""Plants facts in texts: sentences that give something a made-up name, and repeat it later.

A reader can predict the name the second time only from the first time, however far back that is. train_model.py plants
facts to teach a model to look back; measure_recall.py plants them to measure how much KV policies forget. `rng` is a
random.Random throughout.
"""

import re

# What is said of an owner, and the name. Sentences of a kind differ in the owner alone, so the words around a name do
# not tell it.
TEMPLATES = ("The name of the {} is {}.", "They called the {} {}.", "The word for {} was {}.", "It was the {} {}.",
             "The lord of the {} is {}.", "Once there was a {} called {}.")
FIRST, AGAIN = 1, 2  # roles of tokens: of a name that nothing has told before, and of one that can be recalled


class Words:
    """Words to make facts of: those that a SentencePiece tokenizer has as one piece, and parts of made-up names."""

    def __init__(self, tokenizer):
        pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size())]
        self.owners = [p[1:] for p in pieces if re.fullmatch("\u2581[a-z]{4,}", p)]
        self.heads = [p[1:] for p in pieces if re.fullmatch("\u2581[A-Z][a-z]{1,3}", p)]
        self.tails = [p for p in pieces if re.fullmatch("[a-z]{2,4}", p)]


def make_facts(words, rng, n):
    """Returns n pairs (what is said before the name, name), no two of the same owner."""
    facts = []
    for owner in rng.sample(words.owners, n):
        name = rng.choice(words.heads) + "".join(rng.choices(words.tails, k=rng.randint(1, 3)))
        said, _ = rng.choice(TEMPLATES).rsplit(" {}.", 1)
        facts.append((said.format(owner), name))
    return facts


def n_facts(n_tokens):
    """Returns how many facts a text of n_tokens is given: one for every 256, so that it takes longer until a fact comes
    back where the text is longer."""
    return max(2, n_tokens // 256)


def plant(tokens, tokenizer, words, rng, every):
    """Returns (tokens, roles): the tokens of a window, where in every `every` tokens a fact is told over what stood
    there, each again and again; and of every token FIRST where it belongs to a name told for the first time, AGAIN
    where the name was told before, or else 0."""
    tokens = list(tokens)
    roles = [0] * len(tokens)
    facts = [(tokenizer.encode(said), tokenizer.encode(f"{said} {name}"), tokenizer.encode(f"{said} {name}."))
             for said, name in make_facts(words, rng, n_facts(len(tokens)))]
    told = set()
    at = 1.0  # behind the token that begins the window
    while True:
        fact = rng.randrange(len(facts))
        said, named, whole = facts[fact]
        start = int(at + rng.random() * max(every - len(whole), 0))
        if start + len(whole) > len(tokens):
            return tokens, roles
        tokens[start:start + len(whole)] = whole
        n_name = len(named) - len(said)
        roles[start + len(said):start + len(named)] = [AGAIN if fact in told else FIRST] * n_name
        told.add(fact)
        at = max(at + every, start + len(whole))
