/* SPDX-License-Identifier: MIT */
/*
 * Threads compile, run and remove modules of one JIT at the same time; afterwards the packs hold what they held. A program of its own, since
 * Criterion's runner does not start under ThreadSanitizer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

#define NR_THREADS 3
#define NR_ROUNDS 25

static const char good[] =
	"@k = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]\n"
	"@v = global i64 1\n"
	"define i64 @f(i64 %i) uwtable {\n"
	"  %p = getelementptr [4 x i64], ptr @k, i64 0, i64 %i\n"
	"  %a = load i64, ptr %p\n"
	"  %b = load i64, ptr @v\n"
	"  %s = add i64 %a, %b\n"
	"  ret i64 %s\n"
	"}\n";
static const char bad[] = "declare i64 @nobody()\ndefine i64 @f() {\n %r = call i64 @nobody()\n ret i64 %r\n}\n";

static void fail(const char *what)
{
	fprintf(stderr, "jit_threads: %s: %s\n", what, shunt_error());
	exit(1);
}

static struct shunt_jit_module *add(struct shunt_jit *jit, const char *text)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = NULL;
	struct shunt_jit_module *out = NULL;
	char *message = NULL;

	if (LLVMParseIRInContext(context, LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test"), &module, &message))
		fail(message);
	return shunt_jit_add(jit, context, module, NULL, &out) ? NULL : out;
}

static void *churn(void *user)
{
	struct shunt_jit *jit = user;

	for (int i = 0; i < NR_ROUNDS; i++) {
		struct shunt_jit_module *module = add(jit, good);
		int64_t (*f)(int64_t);

		if (!module)
			fail("a good module");
		if (add(jit, bad) || !strstr(shunt_error(), "nobody"))
			fail("a bad module beside good ones must say why");
		shunt_read_begin();
		f = (int64_t (*)(int64_t))shunt_jit_lookup(module, "f");
		/* Removed while it is about to run: the read section keeps it. */
		shunt_jit_remove(module);
		if (f(2) != 4)
			fail("a module computed something else");
		shunt_read_end();
	}
	return NULL;
}

int main(void)
{
	struct shunt_pack_stats start, end;
	pthread_t threads[NR_THREADS];
	struct shunt_jit *jit;

	if (shunt_jit_create(NULL, &jit))
		fail("no JIT");
	shunt_jit_remove(add(jit, good));
	if (shunt_quiesce() || shunt_quiesce() || shunt_pack_get_stats(NULL, &start))
		fail("the start");
	for (int i = 0; i < NR_THREADS; i++)
		if (pthread_create(&threads[i], NULL, churn, jit))
			fail("no thread");
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	shunt_jit_destroy(jit);
	if (shunt_pack_get_stats(NULL, &end))
		fail("the end");
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++) {
		if (end.nr_blocks[s] != start.nr_blocks[s] || end.bytes_used[s] != start.bytes_used[s]) {
			fprintf(stderr, "jit_threads: segment %d: %lu blocks were %lu\n", s, (unsigned long)end.nr_blocks[s],
				(unsigned long)start.nr_blocks[s]);
			return 1;
		}
	}
	return 0;
}
