/* SPDX-License-Identifier: MIT */
/*
 * One aligned 8-byte compare-and-swap through the rw view changes where a stub jumps.
 *
 * Why a running thread sees the old jump or the new one and nothing else:
 *
 * x86-64: the slot is 16-byte aligned and its jump lies wholly in the second, naturally aligned quadword, with the same
 * instruction boundaries before and after. AMD APM volume 2, 7.6.1 (asynchronous cross-modifying code)
 * allows such a modification by a single store without any synchronisation of the executing processor: it runs the old bytes
 * or the new ones. The same section says that stores are observed by instruction fetch in program order, so code written
 * before the store (the new tree) is complete for whoever fetches the new jump. Fetch is kept coherent by physical address,
 * so the alias that we write through does not matter. The Intel SDM (volume 3, "Handling Self- and Cross-Modifying Code")
 * promises no more than its own protocol; the aligned single store is what static-call and wasm jump-table implementations
 * have relied on there for years.
 *
 * arm64: Arm ARM B2.2.5 "Concurrent modification and execution of instructions" names the instructions that may replace each
 * other under execution: B, BL, BRK, HVC, ISB, NOP, SMC, SVC. The slot holds a B in every state. The new tree was cleaned to
 * the point of unification, invalidated from instruction caches and followed by a context synchronisation on every CPU before
 * this call (shunt_pack_finalize), so whoever fetches the new B finds the tree. The maintenance after the store bounds how
 * long the old B may still be fetched; until then a thread runs the old tree, which lives until a grace period has passed. A
 * SYNC_CORE in that batch (runtime/grace.h) drops what was already fetched.
 *
 * Where code has one view (option toggle) nothing of it changes while it lives: the stub jumps through a word of data, which is swapped
 * likewise. Who loads the new word fetches a tree that was made runnable on every CPU before it was stored; who loaded the old one is in
 * a section that began before, and the old tree lives as long.
 *
 * Who synchronises: writers of one site hold their dispatcher's mutex; readers are instruction fetches.
 */
#include "runtime/dispatch/patch.h"

#include <errno.h>

#include "runtime/flush.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"
#include "targets/target.h"

int shunt_patch_stub(struct shunt_patch_site *site, uint64_t dest)
{
	uint64_t *live = (uint64_t *)((char *)site->rw + (site->by_data ? 0 : SHUNT_STUB_WORD));
	uint64_t expected = site->word;
	uint64_t word = dest;
	bool is_stored;

	if (!site->by_data && shunt_target_host()->encode_stub_word(site->slot, dest, &word) < 0)
		return shunt_fail(ERANGE, "stub at %#llx cannot jump to %#llx, which is out of direct reach",
				  (unsigned long long)site->slot, (unsigned long long)dest);
	/* A fork's child gets the word from before or after, and its own copy of the slot is complete before we store again. */
	shunt_pack_patch_begin();
	/* Release orders the tree's bytes before the jump for every observer; a failed swap stores nothing. */
	is_stored = __atomic_compare_exchange_n(live, &expected, word, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	if (is_stored && !site->by_data) {
		shunt_flush_patched(live, word);
		shunt_machine_sync_caches((const void *)(uintptr_t)site->slot, site->rw, SHUNT_STUB_LEN);
	}
	shunt_pack_patch_end();
	if (!is_stored)
		return shunt_fail(EBUSY, "stub at %#llx holds %#llx, not the %#llx stored last: something else writes there",
				  (unsigned long long)site->slot, (unsigned long long)expected,
				  (unsigned long long)site->word);
	site->word = word;
	return 0;
}
