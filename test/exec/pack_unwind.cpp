// SPDX-License-Identifier: MIT
// Unwinding through generated code: a C++ exception thrown below a JITted frame is caught above it, its destructors run, and a backtrace
// taken below names both sides. C++, because only C++ throws.
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <execinfo.h>
#include <stdexcept>

#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/pack.h>

static const char *const text = "define void @through(ptr %callback) uwtable {\n"
				"  call void %callback()\n"
				"  call void asm sideeffect \"\", \"\"()\n"
				"  ret void\n"
				"}\n"
				// Catches all that comes from below, and says so.
				"declare i32 @__gxx_personality_v0(...)\n"
				"declare ptr @__cxa_begin_catch(ptr)\n"
				"declare void @__cxa_end_catch()\n"
				"define i32 @catcher(ptr %callback) uwtable personality ptr @__gxx_personality_v0 {\n"
				"  invoke void %callback() to label %fine unwind label %caught\n"
				"fine:\n"
				"  ret i32 0\n"
				"caught:\n"
				"  %pad = landingpad { ptr, i32 } catch ptr null\n"
				"  %exception = extractvalue { ptr, i32 } %pad, 0\n"
				"  %object = call ptr @__cxa_begin_catch(ptr %exception)\n"
				"  call void @__cxa_end_catch()\n"
				"  ret i32 1\n"
				"}\n";

extern "C" int __gxx_personality_v0(...);

typedef int catcher_fn(void (*callback)());
typedef void through_fn(void (*callback)());

static through_fn *through;
static int nr_destroyed;
static void *frames[64];
static int nr_frames;

struct Guard {
	~Guard() { nr_destroyed++; }
};

static void thrower()
{
	Guard guard;

	throw std::runtime_error("from below");
}

static void tracer()
{
	nr_frames = backtrace(frames, 64);
}

// Keeps its own frame below the generated one.
__attribute__((noinline)) static void thrower_above()
{
	Guard guard;

	through(thrower);
	std::puts("the generated function returned although its callee threw");
}

static bool is_in(const void *p, const struct shunt_block *block)
{
	return p >= block->rx && p < static_cast<const char *>(block->rx) + block->len;
}

static int check_backtrace()
{
	struct shunt_block block;
	int at = -1;

	if (shunt_pack_find(reinterpret_cast<void *>(through), &block, nullptr) != 0)
		return std::puts("the generated function is in no pack"), 1;
	through(tracer);
	for (int i = 0; i < nr_frames; i++)
		if (is_in(frames[i], &block))
			at = i;
	// The host's callback before it, check_backtrace and main behind it at least.
	if (at < 1 || nr_frames < at + 3)
		return std::printf("a backtrace of %d frames has the generated one at %d\n", nr_frames, at), 1;
	return 0;
}

static int check_exceptions()
{
	// Often enough that a lookup that is cached wrongly shows.
	for (int i = 0; i < 1000; i++) {
		bool caught = false;

		try {
			thrower_above();
		} catch (const std::runtime_error &error) {
			caught = !std::strcmp(error.what(), "from below");
		}
		if (!caught || nr_destroyed != 2 * (i + 1))
			return std::printf("round %d: caught %d, %d destructors\n", i, caught, nr_destroyed), 1;
	}
	return 0;
}

static int check_catcher(struct shunt_jit_module *module)
{
	auto *catcher = reinterpret_cast<catcher_fn *>(shunt_jit_lookup(module, "catcher"));

	if (!catcher || catcher(thrower) != 1 || catcher(tracer) != 0)
		return std::puts("the generated function did not catch what was thrown below it"), 1;
	return 0;
}

static struct shunt_jit_module *add(struct shunt_jit *jit)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, std::strlen(text), "unwind");
	LLVMModuleRef module = nullptr;
	struct shunt_jit_module *out = nullptr;
	char *message = nullptr;
	const struct shunt_jit_symbol symbols[] = {
		{"__gxx_personality_v0", reinterpret_cast<const void *>(__gxx_personality_v0)},
		{"__cxa_begin_catch", reinterpret_cast<const void *>(abi::__cxa_begin_catch)},
		{"__cxa_end_catch", reinterpret_cast<const void *>(abi::__cxa_end_catch)},
	};
	struct shunt_jit_module_options options = {};

	options.symbols = symbols;
	options.nr_symbols = 3;
	if (LLVMParseIRInContext(context, buffer, &module, &message))
		return std::printf("%s\n", message), nullptr;
	if (shunt_jit_add(jit, context, module, &options, &out) != 0)
		return std::printf("%s\n", shunt_error()), nullptr;
	return out;
}

int main()
{
	struct shunt_jit *jit = nullptr;
	int failed = 0;

	if (shunt_jit_create(nullptr, &jit) != 0)
		return std::printf("%s\n", shunt_error()), 1;
	// A second time after the first has gone: its unwind tables must have gone with it.
	for (int round = 0; !failed && round < 3; round++) {
		struct shunt_jit_module *module = add(jit);

		if (!module)
			return 1;
		through = reinterpret_cast<through_fn *>(shunt_jit_lookup(module, "through"));
		if (!through)
			return std::puts("the generated function cannot be found"), 1;
		nr_destroyed = 0;
		failed = check_backtrace() || check_exceptions() || check_catcher(module);
		shunt_jit_remove(module);
	}
	shunt_jit_destroy(jit);
	std::printf("exceptions and backtraces through generated code: %s\n", failed ? "failed" : "work");
	return failed;
}
