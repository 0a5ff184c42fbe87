/* Trains a small network on handwritten digits without Python: the whole step, gradients and
 * optimiser included, is one call of the object file that examples/export_mlp.py writes.
 *
 *   cc -O2 -I build/c examples/c/step.c build/c/mlp_step.o build/c/mlp_eval.o -lm -o build/c/train
 *   build/c/train build/c/mlp.bin 20
 */
#include <stdio.h>
#include <stdlib.h>

#include "mlp_eval.h"
#include "mlp_step.h"

enum { PIXELS = MLP_STEP_SIZE_x / MLP_STEP_SIZE_y, BATCH = MLP_STEP_SIZE_y, TEST = MLP_EVAL_SIZE_y };

/* What a step reads and writes; params and optimiser state change in place. */
static float x[MLP_STEP_SIZE_x], w0[MLP_STEP_SIZE_w0], b0[MLP_STEP_SIZE_b0], w1[MLP_STEP_SIZE_w1],
    b1[MLP_STEP_SIZE_b1], w2[MLP_STEP_SIZE_w2], b2[MLP_STEP_SIZE_b2], loss, test_loss;
static int32_t y[MLP_STEP_SIZE_y];
static int64_t right, test_right;

static void stop(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static void *memory(size_t bytes) {
    void *found = malloc(bytes ? bytes : 1);
    if (!found) stop("out of memory");
    return found;
}

static void *arena(size_t bytes) {
    char *start = memory(bytes + MLP_STEP_ALIGNMENT);
    return start + (-(uintptr_t)start & (MLP_STEP_ALIGNMENT - 1));
}

static void read_all(FILE *file, void *array, size_t bytes) {
    if (fread(array, 1, bytes, file) != bytes) stop("the data file is too short");
}

/* A different order of the rows each epoch (xorshift, then Fisher-Yates). */
static void shuffle(int32_t *rows, int32_t count) {
    static uint32_t seed = 2463534242u;
    int32_t i;
    for (i = count - 1; i > 0; i--) {
        int32_t j, held = rows[i];
        seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
        j = (int32_t)(seed % (uint32_t)(i + 1));
        rows[i] = rows[j], rows[j] = held;
    }
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    int epochs = argc == 3 ? atoi(argv[2]) : 0, epoch;
    int32_t counts[2], start, i, k, *rows, *labels, *test_labels;
    float *images, *test_images;
    mlp_step_step step = {0};
    mlp_eval_step eval = {0};

    if (!file) stop("usage: train DATA EPOCHS");
    read_all(file, counts, sizeof counts);
    if (counts[0] < BATCH || counts[1] != TEST) stop("the data does not fit the program");
    images = memory(sizeof *images * PIXELS * (size_t)counts[0]);
    labels = memory(sizeof *labels * (size_t)counts[0]);
    rows = memory(sizeof *rows * (size_t)counts[0]);
    test_images = memory(sizeof *test_images * PIXELS * TEST);
    test_labels = memory(sizeof *test_labels * TEST);
    read_all(file, images, sizeof *images * PIXELS * (size_t)counts[0]);
    read_all(file, labels, sizeof *labels * (size_t)counts[0]);
    read_all(file, test_images, sizeof *test_images * PIXELS * TEST);
    read_all(file, test_labels, sizeof *test_labels * TEST);
    read_all(file, w0, sizeof w0), read_all(file, b0, sizeof b0);
    read_all(file, w1, sizeof w1), read_all(file, b1, sizeof b1);
    read_all(file, w2, sizeof w2), read_all(file, b2, sizeof b2);
    fclose(file);

    step.x = x, step.y = y, step.loss = &loss, step.right = &right;
    step.w0 = w0, step.b0 = b0, step.w1 = w1, step.b1 = b1, step.w2 = w2, step.b2 = b2;
#define STATE(name) step.name = memory(sizeof *step.name * MLP_STEP_SIZE_##name)
    STATE(step);
    STATE(w0_m), STATE(b0_m), STATE(w1_m), STATE(b1_m), STATE(w2_m), STATE(b2_m);
    STATE(w0_v), STATE(b0_v), STATE(w1_v), STATE(b1_v), STATE(w2_v), STATE(b2_v);
    step.arena = arena(MLP_STEP_ARENA_BYTES(1));
    if (mlp_step_init(&step) != MLP_STEP_OK) stop("the state can't be set up");

    for (i = 0; i < counts[0]; i++) rows[i] = i;
    for (epoch = 1; epoch <= epochs; epoch++) {
        double total = 0;
        int64_t seen = 0, correct = 0;
        shuffle(rows, counts[0]);
        for (start = 0; start + BATCH <= counts[0]; start += BATCH) {
            for (i = 0; i < BATCH; i++) {
                const float *image = images + (size_t)rows[start + i] * PIXELS;
                for (k = 0; k < PIXELS; k++) x[i * PIXELS + k] = image[k];
                y[i] = labels[rows[start + i]];
            }
            if (mlp_step_run(&step) != MLP_STEP_OK) stop("the step refused its arrays");
            total += loss * BATCH, correct += right, seen += BATCH;
        }
        printf("epoch %2d  loss %.4f  training accuracy %.4f\n", epoch, total / (double)seen,
               (double)correct / (double)seen);
    }

    /* Evaluation is a second program over the same params. */
    eval.x = test_images, eval.y = test_labels, eval.loss = &test_loss, eval.right = &test_right;
    eval.w0 = w0, eval.b0 = b0, eval.w1 = w1, eval.b1 = b1, eval.w2 = w2, eval.b2 = b2;
    eval.arena = arena(MLP_EVAL_ARENA_BYTES(1));
    if (mlp_eval_run(&eval) != MLP_EVAL_OK) stop("the evaluation refused its arrays");
    printf("test accuracy %.4f (%d of %d), loss %.4f\n", (double)test_right / TEST,
           (int)test_right, (int)TEST, test_loss);
    return 0;
}
