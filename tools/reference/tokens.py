"""How the package tokenizers reads hostile text, as a fixture for the engine's tests.

    pip install tokenizers==0.23.3
    python tokens.py engine/models/tiny/heldout.txt engine/tests/fixtures/byte-pairs

Trains a small vocabulary of byte pairs on the text, once for each way to split that the engine knows, writes it as a
tokenizer.json and beside it the tokens of some texts.
"""

import json
import os
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

VOCAB = 700
TEXTS = [
    "", " ", "  ", "\n", "a", "It is a truth universally acknowledged, that a single man",
    "don't won't we'll I've they're I'm he'd it's 'tis 'S 'LL", "x'sy''s 's's", "1847", "in 1847, 3.14159 and 12 345",
    "a  b   c    d", "trailing  ", "  leading", "tabs\t\tand\nlines\r\n\r\n  end", " \n \n x", "a \u00a0 b\u2003c\u3000d",
    "na\u00efve caf\u00e9 \u00dcber stra\u00dfe", "\u4f60\u597d\u4e16\u754c", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u00bd \u00b2 \u0663\u0664 \u2167 \u2460 x\u00b2", "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301", "<|im_start|>user<|im_end|>",
    "fn main() { println!(\"{}\", x[0]); } // ok", "\u0000\u0001\u007f\u0085\u200b\ufeff", "1a2b 3\u00bd4", "  7  8", "_ __ ---- ...!?",
]
SPLITS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "digits": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
}


def main():
    text, folder = sys.argv[1:]
    lines = open(text, encoding="latin-1").read().splitlines(keepends=True)
    os.makedirs(folder, exist_ok=True)
    for name, split in SPLITS.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = split
        tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        open(f"{folder}/{name}.json", "w").write(tokenizer.to_str())
        tokens = [{"text": text, "tokens": tokenizer.encode(text).ids} for text in TEXTS]
        json.dump(tokens, open(f"{folder}/{name}-tokens.json", "w"))


if __name__ == "__main__":
    main()
