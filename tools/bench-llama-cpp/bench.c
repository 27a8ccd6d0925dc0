/* llama.cpp as a rival: a prompt of 512 tokens and 32 that follow it, on one thread, best of a few rounds. The same
 * work as benches/tokens.rs: logits of the last position only, f16 KV cache, processor time instead of wall time.
 *
 *   bench BACKENDS MODEL [REQUANTISED]
 *
 * BACKENDS is the folder of libggml-cpu-*.so, of which llama.cpp takes the best for this processor. With a third
 * argument the model is written there as Q8_0 first and that is measured. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ggml-backend.h"
#include "llama.h"

enum { PROMPT = 512, DECODED = 32, ROUNDS = 5 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void quiet(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static llama_token largest(const float *logits, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int fail(const char *what) {
    fprintf(stderr, "bench: %s failed\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) return fail("usage: bench BACKENDS MODEL [REQUANTISED]; reading the arguments");
    llama_log_set(quiet, NULL);
    ggml_backend_load_all_from_path(argv[1]);
    const char *path = argv[2];
    if (argc > 3) {
        struct llama_model_quantize_params quantise = llama_model_quantize_default_params();
        quantise.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
        quantise.allow_requantize = true;
        if (llama_model_quantize(argv[2], argv[3], &quantise) != 0) return fail("requantising");
        path = argv[3];
    }
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return fail("loading the model");
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_batch = PROMPT;
    params.n_threads = params.n_threads_batch = 1;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) return fail("making a context");
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    double prefill = 0, decode = 0;
    for (int round = 0; round < ROUNDS; round++) {
        llama_token tokens[PROMPT];
        for (int i = 0; i < PROMPT; i++) tokens[i] = i * 7 % 40000;
        llama_memory_clear(llama_get_memory(context), true);
        double begun = now();
        if (llama_decode(context, llama_batch_get_one(tokens, PROMPT)) != 0) return fail("the prompt");
        llama_token next = largest(llama_get_logits_ith(context, -1), vocab);
        double rate = PROMPT / (now() - begun);
        if (rate > prefill) prefill = rate;
        begun = now();
        for (int i = 0; i < DECODED; i++) {
            if (llama_decode(context, llama_batch_get_one(&next, 1)) != 0) return fail("a token");
            next = largest(llama_get_logits_ith(context, -1), vocab);
        }
        rate = DECODED / (now() - begun);
        if (rate > decode) decode = rate;
    }
    printf("prompt of %d: %.0f tokens/s\ndecode after it: %.1f tokens/s\n", PROMPT, prefill, decode);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
