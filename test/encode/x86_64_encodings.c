/* SPDX-License-Identifier: MIT */
/* x86-64: one encoding a line, as Intel-syntax text and bytes. Branch operands are displacements, as LLVM prints them. */
#include "encodings.h"
#include "targets/x86_64/encode.h"

#define A ENCODING_ADDR

void x86_64_for_each_encoding(encoding_check *check)
{
	ENCODING("endbr64", "f30f1efa", x86_64_endbr64(c));
	ENCODING("int3", "cc", x86_64_int3(c));
	ENCODING("lfence", "0faee8", x86_64_lfence(c));
	ENCODING("pause", "f390", x86_64_pause(c));
	ENCODING("ret", "c3", x86_64_ret(c));
	ENCODING("nop", "90", x86_64_nops(c, 1));
	ENCODING("nop", "6690", x86_64_nops(c, 2));
	ENCODING("nop dword ptr [rax]", "0f1f00", x86_64_nops(c, 3));
	ENCODING("nop dword ptr [rax]", "0f1f4000", x86_64_nops(c, 4));
	ENCODING("nop dword ptr [rax + rax]", "0f1f440000", x86_64_nops(c, 5));
	ENCODING("nop word ptr [rax + rax]", "660f1f440000", x86_64_nops(c, 6));
	ENCODING("nop dword ptr [rax]", "0f1f8000000000", x86_64_nops(c, 7));
	ENCODING("nop dword ptr [rax + rax]", "0f1f840000000000", x86_64_nops(c, 8));
	ENCODING("jmp 16", "eb10", x86_64_jmp_rel8(c, A + 18));
	ENCODING("jmp -2", "ebfe", x86_64_jmp_rel8(c, A));
	ENCODING("jmp 4660", "e934120000", x86_64_jmp_rel32(c, A + 5 + 0x1234));
	ENCODING("jmp -5", "e9fbffffff", x86_64_jmp_rel32(c, A));
	ENCODING("je 16", "7410", x86_64_jcc_rel8(c, X86_64_E, A + 18));
	ENCODING("ja 16", "7710", x86_64_jcc_rel8(c, X86_64_A, A + 18));
	ENCODING("jb 16", "7210", x86_64_jcc_rel8(c, X86_64_B, A + 18));
	ENCODING("jbe 16", "7610", x86_64_jcc_rel8(c, X86_64_BE, A + 18));
	ENCODING("jl 16", "7c10", x86_64_jcc_rel8(c, X86_64_L, A + 18));
	ENCODING("je 4660", "0f8434120000", x86_64_jcc_rel32(c, X86_64_E, A + 6 + 0x1234));
	ENCODING("ja 4660", "0f8734120000", x86_64_jcc_rel32(c, X86_64_A, A + 6 + 0x1234));
	ENCODING("jb 4660", "0f8234120000", x86_64_jcc_rel32(c, X86_64_B, A + 6 + 0x1234));
	ENCODING("jbe 4660", "0f8634120000", x86_64_jcc_rel32(c, X86_64_BE, A + 6 + 0x1234));
	ENCODING("jl -4660", "0f8cccedffff", x86_64_jcc_rel32(c, X86_64_L, A + 6 - 0x1234));
	ENCODING("call 7", "e807000000", x86_64_call_rel32(c, A + 12));
	ENCODING("jmp rax", "ffe0", x86_64_jmp_reg(c, X86_64_RAX));
	ENCODING("jmp rdi", "ffe7", x86_64_jmp_reg(c, X86_64_RDI));
	ENCODING("jmp r10", "41ffe2", x86_64_jmp_reg(c, X86_64_R10));
	ENCODING("jmp r11", "41ffe3", x86_64_jmp_reg(c, X86_64_R11));
	ENCODING("push rdi", "57", x86_64_push_reg(c, X86_64_RDI));
	ENCODING("push r9", "4151", x86_64_push_reg(c, X86_64_R9));
	ENCODING("mov rdi, qword ptr [rsp + 40]", "488bbc2428000000", x86_64_mov_reg_rsp(c, X86_64_RDI, 40));
	ENCODING("mov r8, qword ptr [rsp]", "4c8b842400000000", x86_64_mov_reg_rsp(c, X86_64_R8, 0));
	ENCODING("add rsp, 56", "4883c438", x86_64_add_rsp_imm8(c, 56));
	ENCODING("movzx r11d, al", "440fb6d8", x86_64_movz_reg_reg(c, X86_64_R11, X86_64_RAX, 1));
	ENCODING("movzx eax, sil", "400fb6c6", x86_64_movz_reg_reg(c, X86_64_RAX, X86_64_RSI, 1));
	ENCODING("movzx r11d, ax", "440fb7d8", x86_64_movz_reg_reg(c, X86_64_R11, X86_64_RAX, 2));
	ENCODING("mov r11d, eax", "448bd8", x86_64_movz_reg_reg(c, X86_64_R11, X86_64_RAX, 4));
	ENCODING("mov r11, rax", "4c8bd8", x86_64_movz_reg_reg(c, X86_64_R11, X86_64_RAX, 8));
	ENCODING("xor eax, eax", "31c0", x86_64_xor_eax_eax(c));
	ENCODING("bt rcx, r11", "4c0fa3d9", x86_64_bt_reg_reg(c, X86_64_RCX, X86_64_R11));
	ENCODING("mov r11d, dword ptr fs:[-60]", "64448b1c25c4ffffff", x86_64_mov_reg32_fs(c, X86_64_R11, -60));
	ENCODING("mov ecx, dword ptr fs:[4660]", "64408b0c2534120000", x86_64_mov_reg32_fs(c, X86_64_RCX, 0x1234));
	ENCODING("and r11d, 255", "4181e3ff000000", x86_64_and_reg32_imm32(c, X86_64_R11, 255));
	ENCODING("shl r11, 12", "49c1e30c", x86_64_shl_reg_imm8(c, X86_64_R11, 12));
	ENCODING("add r11, qword ptr [rip + 4660]", "4c031d34120000", x86_64_add_reg_rip(c, X86_64_R11, A + 7 + 0x1234));
	ENCODING("mov r11, qword ptr [rip - 4660]", "4c8b1dccedffff", x86_64_mov_reg_rip(c, X86_64_R11, A + 7 - 0x1234));
	ENCODING("inc qword ptr [r11 + 4660]", "49ff8334120000", x86_64_inc_mem_disp32(c, X86_64_R11, 0x1234));
	ENCODING("jae 4660", "0f8334120000", x86_64_jcc_rel32(c, X86_64_AE, A + 6 + 0x1234));
	ENCODING("mov r10, rdi", "4989fa", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_RDI));
	ENCODING("mov r10, rsi", "4989f2", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_RSI));
	ENCODING("mov r10, rdx", "4989d2", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_RDX));
	ENCODING("mov r10, rcx", "4989ca", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_RCX));
	ENCODING("mov r10, r8", "4d89c2", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_R8));
	ENCODING("mov r10, r9", "4d89ca", x86_64_mov_reg_reg(c, X86_64_R10, X86_64_R9));
	ENCODING("mov rax, r15", "4c89f8", x86_64_mov_reg_reg(c, X86_64_RAX, X86_64_R15));
	ENCODING("mov qword ptr [rsp], r10", "4c891424", x86_64_mov_rsp_reg(c, X86_64_R10));
	ENCODING("mov qword ptr [rsp], rax", "48890424", x86_64_mov_rsp_reg(c, X86_64_RAX));
	ENCODING("movabs r11, 1311768467463790320", "49bbf0debc9a78563412",
		 x86_64_movabs_reg_imm64(c, X86_64_R11, 0x123456789abcdef0));
	ENCODING("movabs rcx, -1", "48b9ffffffffffffffff", x86_64_movabs_reg_imm64(c, X86_64_RCX, UINT64_MAX));
	ENCODING("lea r11, [rip + 4660]", "4c8d1d34120000", x86_64_lea_reg_rip(c, X86_64_R11, A + 7 + 0x1234));
	ENCODING("jmp qword ptr [rip + 4660]", "ff2534120000", x86_64_jmp_rip(c, A + 6 + 0x1234));
	ENCODING("jmp qword ptr [rip - 6]", "ff25faffffff", x86_64_jmp_rip(c, A));
	ENCODING("lea r11, [rip - 7]", "4c8d1df9ffffff", x86_64_lea_reg_rip(c, X86_64_R11, A));
	ENCODING("lea rdx, [rip + 1]", "488d1501000000", x86_64_lea_reg_rip(c, X86_64_RDX, A + 8));
	ENCODING("sub r11, r10", "4d29d3", x86_64_sub_reg_reg(c, X86_64_R11, X86_64_R10));
	ENCODING("sub rax, r12", "4c29e0", x86_64_sub_reg_reg(c, X86_64_RAX, X86_64_R12));
	ENCODING("cmp r10, r11", "4d39da", x86_64_cmp_reg_reg(c, X86_64_R10, X86_64_R11));
	ENCODING("cmp rbx, rsp", "4839e3", x86_64_cmp_reg_reg(c, X86_64_RBX, X86_64_RSP));
	ENCODING("cmp r11, 64", "4983fb40", x86_64_cmp_reg_imm8(c, X86_64_R11, 64));
	ENCODING("cmp r11, -128", "4983fb80", x86_64_cmp_reg_imm8(c, X86_64_R11, -128));
	ENCODING("cmp rdx, 1", "4883fa01", x86_64_cmp_reg_imm8(c, X86_64_RDX, 1));
	ENCODING("cmp r11, 305419896", "4981fb78563412", x86_64_cmp_reg_imm32(c, X86_64_R11, 0x12345678));
	ENCODING("cmp r11, -2147483648", "4981fb00000080", x86_64_cmp_reg_imm32(c, X86_64_R11, INT32_MIN));
	ENCODING("cmp rdx, 4096", "4881fa00100000", x86_64_cmp_reg_imm32(c, X86_64_RDX, 4096));
}
