/* SPDX-License-Identifier: MIT */
/* Tells the host what became of a call. LLVM keeps names with a length; the host gets C strings. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "passes/pass.h"

static void copy_string(char *to, size_t room, const char *from, size_t len)
{
	if (!from)
		len = 0;
	if (len >= room)
		len = room - 1;
	memcpy(to, from ? from : "", len);
	to[len] = '\0';
}

static void emit(struct shunt_pass *pass, LLVMValueRef call, enum shunt_remark_kind kind, const char *name, const char *callee,
		 const char *message, va_list args)
{
	char function[512], text[1024], directory[1024], file[2048];
	LLVMValueRef parent = LLVMGetBasicBlockParent(LLVMGetInstructionParent(call));
	struct shunt_remark remark = { .kind = kind, .pass = pass->name, .name = name, .callee = callee };
	unsigned file_len = 0, directory_len = 0;
	const char *path, *value_name;
	size_t len = 0;

	if (!pass->options->remark)
		return;
	vsnprintf(text, sizeof(text), message, args);
	value_name = LLVMGetValueName2(parent, &len);
	copy_string(function, sizeof(function), value_name, len);
	remark.message = text;
	remark.function = function;
	path = LLVMGetDebugLocFilename(call, &file_len);
	if (path && file_len) {
		const char *where = LLVMGetDebugLocDirectory(call, &directory_len);

		if (path[0] == '/' || !where || !directory_len) {
			copy_string(file, sizeof(file), path, file_len);
		} else {
			copy_string(directory, sizeof(directory), where, directory_len);
			snprintf(file, sizeof(file), "%s/%.*s", directory, (int)(file_len > 1000 ? 1000 : file_len), path);
		}
		remark.file = file;
		remark.line = LLVMGetDebugLocLine(call);
		remark.column = LLVMGetDebugLocColumn(call);
	}
	pass->options->remark(pass->options->remark_user, &remark);
}

void shunt_pass_passed(struct shunt_pass *pass, LLVMValueRef call, const char *name, const char *callee, const char *message, ...)
{
	va_list args;

	pass->changed = true;
	va_start(args, message);
	emit(pass, call, SHUNT_REMARK_PASSED, name, callee, message, args);
	va_end(args);
}

void shunt_pass_missed(struct shunt_pass *pass, LLVMValueRef call, const char *name, const char *callee, const char *message, ...)
{
	va_list args;

	pass->counts->missed++;
	va_start(args, message);
	emit(pass, call, SHUNT_REMARK_MISSED, name, callee, message, args);
	va_end(args);
}
