/* SPDX-License-Identifier: MIT */
/* The packs of a run, and whose code lies where in them. */
#include <errno.h>
#include <string.h>
#include "tools/picture.h"
#include "tools/run_packs.h"

struct naming {
	const struct shunt_replay *replay;
	struct shunt_dispatcher_stats dispatcher;
	char text[160];
};

static bool is_in(const struct shunt_block *block, const void *address)
{
	return address && address >= block->rx && (const char *)address < (const char *)block->rx + block->len;
}

static const char *name_block(void *user, enum shunt_segment segment, const struct shunt_block *block)
{
	struct naming *naming = user;
	const struct shunt_replay *replay = naming->replay;
	const void *code;
	size_t len;

	if (segment != SHUNT_SEGMENT_CODE)
		return segment == SHUNT_SEGMENT_DATA ? "data of programs" : "constants of programs";
	for (size_t q = 0; q < replay->nr_queues; q++)
		if (shunt_bpf_program_code(replay->queues[q].prog, &code, &len) == 0 && is_in(block, code)) {
			snprintf(naming->text, sizeof(naming->text), "%s (queue %zu)", shunt_bpf_program_name(replay->queues[q].prog), q);
			return naming->text;
		}
	if (shunt_jit_module_code(replay->loop_module, "shunt_replay_loop", &code, &len) == 0 && is_in(block, code))
		return "receive loop";
	if (is_in(block, naming->dispatcher.stub))
		return "stub of dispatcher " SHUNT_REPLAY_DISPATCHER;
	if (is_in(block, naming->dispatcher.tree))
		return "tree of dispatcher " SHUNT_REPLAY_DISPATCHER;
	return "other code";
}

int run_packs_draw(const struct shunt_replay *replay, const char *svg, FILE *out)
{
	struct naming naming = { .replay = replay };
	struct picture picture;
	int err;

	shunt_dispatcher_get_stats(replay->dispatcher, &naming.dispatcher);
	err = picture_take(replay->arena, name_block, &naming, &picture);
	if (err)
		return err;
	if (out) {
		picture_print(&picture, out);
		fputc('\n', out);
	}
	if (svg)
		err = picture_write_svg(&picture, svg);
	picture_fini(&picture);
	return err;
}
