/* SPDX-License-Identifier: MIT */
#include "runtime/pack/eh_frame.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* DW_EH_PE_*: the low half is a format, then what the value is relative to. */
enum { PE_ABSPTR = 0, PE_UDATA2 = 2, PE_UDATA4 = 3, PE_UDATA8 = 4, PE_SDATA2 = 10, PE_SDATA4 = 11, PE_SDATA8 = 12 };
enum { PE_FORMAT = 0x0f, PE_PCREL = 0x10, PE_RELATIVE = 0x70, PE_OMIT = 0xff };

/* ---- checking -------------------------------------------------------------------------------------------------- */

/* Bytes still to be read of an entry; bad once it was asked for more than there are. */
struct cursor {
	const uint8_t *at, *end;
	bool bad;
};

static uint8_t read_byte(struct cursor *cursor)
{
	if (cursor->at < cursor->end)
		return *cursor->at++;
	cursor->bad = true;
	return 0;
}

/* The value is not needed anywhere. */
static void skip_leb128(struct cursor *cursor)
{
	while (read_byte(cursor) & 0x80)
		;
}

static size_t format_len(uint8_t encoding)
{
	switch (encoding & PE_FORMAT) {
	case PE_ABSPTR: case PE_UDATA8: case PE_SDATA8: return 8;
	case PE_UDATA4: case PE_SDATA4: return 4;
	case PE_UDATA2: case PE_SDATA2: return 2;
	}
	return 0;
}

static uintptr_t read_pointer(struct cursor *cursor, uint8_t encoding)
{
	uintptr_t base = (encoding & PE_RELATIVE) == PE_PCREL ? (uintptr_t)cursor->at : 0;
	size_t len = format_len(encoding);
	uint64_t value = 0;

	if (!len || (size_t)(cursor->end - cursor->at) < len) {
		cursor->bad = true;
		return 0;
	}
	memcpy(&value, cursor->at, len);
	cursor->at += len;
	if ((encoding & PE_FORMAT) == PE_SDATA4)
		value = (uint64_t)(int32_t)value;
	else if ((encoding & PE_FORMAT) == PE_SDATA2)
		value = (uint64_t)(int16_t)value;
	return base + value;
}

/* How the FDEs of a CIE (its bytes from the version on) say where their code is; PE_OMIT when that is not understood. */
static uint8_t pointer_encoding(struct cursor cursor)
{
	uint8_t version = read_byte(&cursor);
	const uint8_t *augmentation = cursor.at;
	uint8_t encoding = PE_ABSPTR;

	while (read_byte(&cursor))
		;
	if (cursor.bad || (version != 1 && version != 3) || (*augmentation && *augmentation != 'z'))
		return PE_OMIT;
	skip_leb128(&cursor); /* code alignment */
	skip_leb128(&cursor); /* data alignment */
	if (version == 1)
		read_byte(&cursor); /* return address */
	else
		skip_leb128(&cursor);
	if (*augmentation)
		skip_leb128(&cursor); /* length of what follows */
	for (const uint8_t *letter = augmentation; *letter; letter++) {
		if (*letter == 'R')
			encoding = read_byte(&cursor);
		else if (*letter == 'L')
			read_byte(&cursor);
		else if (*letter == 'P')
			read_pointer(&cursor, read_byte(&cursor) & PE_FORMAT);
		else if (*letter != 'z' && *letter != 'S' && *letter != 'B')
			return PE_OMIT;
	}
	if (cursor.bad || ((encoding & PE_RELATIVE) != PE_ABSPTR && (encoding & PE_RELATIVE) != PE_PCREL) || encoding & 0x80)
		return PE_OMIT;
	return encoding;
}

/* The entry at `at`, from behind its length; false where it leaves the section. *id is 0 for a CIE. */
static bool open_entry(const uint8_t *at, const uint8_t *end, struct cursor *cursor, uint32_t *len, uint32_t *id)
{
	*len = *id = 0;
	if (end - at < 4)
		return false;
	memcpy(len, at, 4);
	if (!*len)
		return true;
	if (*len < 4 || *len > (size_t)(end - at) - 4)
		return false;
	memcpy(id, at + 4, 4);
	*cursor = (struct cursor){ .at = at + 8, .end = at + 4 + *len };
	return true;
}

const char *shunt_eh_frame_check(const void *section, size_t section_len, uintptr_t code, size_t code_len)
{
	const uint8_t *at = section, *end = at + section_len;
	struct cursor cursor = { 0 };
	bool has_fde = false;
	uint32_t len, id;

	for (;; at += 4 + len) {
		struct cursor cie = { 0 };
		uint32_t cie_len, cie_id;
		uintptr_t begin, range;
		uint8_t encoding;

		if (!open_entry(at, end, &cursor, &len, &id))
			return "has an entry that leaves it, or no zero word at its end";
		if (!len)
			return has_fde ? NULL : "has no FDE";
		if (!id)
			continue;
		/* The id of an FDE is the way back to its CIE. */
		if (id > (size_t)(at + 4 - (const uint8_t *)section) || !open_entry(at + 4 - id, end, &cie, &cie_len, &cie_id) || !cie_len || cie_id)
			return "has an FDE without a CIE";
		encoding = pointer_encoding(cie);
		if (encoding == PE_OMIT)
			return "has a CIE that is not understood: versions 1 and 3, augmentations of z, R, L, P, S and B, and absolute or "
			       "PC-relative addresses are";
		begin = read_pointer(&cursor, encoding);
		range = read_pointer(&cursor, encoding & PE_FORMAT);
		if (cursor.bad)
			return "has an FDE that is too short";
		if (begin < code || begin - code > code_len || range > code_len - (begin - code))
			return "has an FDE for code outside the block";
		has_fde = true;
	}
}

/* ---- making ---------------------------------------------------------------------------------------------------- */

/* DWARF's view of a machine: number of the return address, and instructions as in 6.4.2. */
struct machine_rules {
	uint8_t return_address;
	uint8_t at_call[5];       /* when a function begins */
	uint8_t at_call_len;
	uint8_t frame_pointer[8]; /* between the prologue and the epilogue of one that keeps a frame pointer */
	uint8_t frame_pointer_len;
};

enum { CFA_DEF_CFA = 0x0c, CFA_OFFSET = 0x80 };

/* rsp is 7, rbp 6, the return address 16. */
__attribute__((unused)) static const struct machine_rules x86_64_rules = {
	.return_address = 16,
	.at_call = { CFA_DEF_CFA, 7, 8, CFA_OFFSET | 16, 1 },
	.at_call_len = 5,
	.frame_pointer = { CFA_DEF_CFA, 6, 16, CFA_OFFSET | 6, 2 },
	.frame_pointer_len = 5,
};
/* sp is 31, x29 the frame pointer, x30 the return address. */
__attribute__((unused)) static const struct machine_rules arm64_rules = {
	.return_address = 30,
	.at_call = { CFA_DEF_CFA, 31, 0 },
	.at_call_len = 3,
	.frame_pointer = { CFA_DEF_CFA, 29, 16, CFA_OFFSET | 29, 2, CFA_OFFSET | 30, 1 },
	.frame_pointer_len = 7,
};
#if defined(__x86_64__)
static const struct machine_rules *const rules = &x86_64_rules;
#else
static const struct machine_rules *const rules = &arm64_rules;
#endif

#define DATA_ALIGNMENT 0x78u /* -8, SLEB128 */
#define CIE_LEN 24u
#define FDE_HEAD_LEN 25u     /* lengths and pointers before the instructions */

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

static uint8_t *put_u32(uint8_t *at, size_t value)
{
	uint32_t word = (uint32_t)value;

	return put(at, &word, sizeof(word));
}

void *shunt_eh_frame_make(uintptr_t code, size_t code_len, const void *cfi, size_t cfi_len, size_t *len)
{
	const uint8_t head[] = { 1, 'z', 'R', 0, 1, DATA_ALIGNMENT, rules->return_address, 1, PE_ABSPTR };
	uint64_t begin = code, range = code_len;
	size_t fde_len;
	uint8_t *section, *at;

	if (!cfi) {
		cfi = rules->frame_pointer;
		cfi_len = rules->frame_pointer_len;
	}
	if (cfi_len > UINT32_MAX / 2)
		return NULL;
	fde_len = (FDE_HEAD_LEN + cfi_len + 7) & ~(size_t)7;
	*len = CIE_LEN + fde_len + 4;
	/* Zeroed: DW_CFA_nop fills entries up, and a zero word ends the section. */
	section = calloc(1, *len);
	if (!section)
		return NULL;
	at = put_u32(section, CIE_LEN - 4);
	at = put_u32(at, 0);
	at = put(at, head, sizeof(head));
	put(at, rules->at_call, rules->at_call_len);
	at = put_u32(section + CIE_LEN, fde_len - 4);
	at = put_u32(at, CIE_LEN + 4);
	at = put(at, &begin, sizeof(begin));
	at = put(at, &range, sizeof(range));
	*at++ = 0; /* augmentation data: none */
	put(at, cfi, cfi_len);
	return section;
}
