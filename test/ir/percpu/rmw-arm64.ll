; The exact operation on arm64, and what the assembler makes of it: start, commit and the signature before the abort handler.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:-28;rmw=exact>' --maps=%S/Inputs/rmw.maps %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %llvm/llc -mtriple=aarch64-linux-gnu -relocation-model=pic -filetype=obj %t.ll -o %t.o
; RUN: %llvm/llvm-objdump -dr --no-show-raw-insn %t.o | %FileCheck %s --check-prefix=CODE
; RUN: %llvm/llvm-readelf -r %t.o | %FileCheck %s --check-prefix=RELOC
target triple = "aarch64-unknown-linux-gnu"

@counts = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)

; CHECK: [[AREA:%.*]] = getelementptr i8, ptr %thread{{.*}}, i64 -32
; CHECK: call { i64, i64, i32 } asm sideeffect {{.*}}~{x16},~{x17}"
; CHECK-SAME: i64 5, ptr [[AREA]])
; CODE-LABEL: <add>:
; CODE: TPIDR_EL0
; CODE: adrp [[CPU:x[0-9]+]]
; CODE: add [[CPU]], [[CPU]], #0x0
; CODE: str [[CPU]], {{\[}}[[RSEQ:x[0-9]+]], #0x8]
; CODE: ldrsw [[CPU]], {{\[}}[[RSEQ]], #0x4]
; CODE-NEXT: tbnz [[CPU]], #0x3f
; CODE-NEXT: add [[CPU]], {{x[0-9]+}}, [[CPU]], lsl #30
; CODE-NEXT: ldr [[SUM:x[0-9]+]], {{\[}}[[CPU]]]
; CODE-NEXT: add [[SUM]], [[SUM]]
; CODE-NEXT: str [[SUM]], {{\[}}[[CPU]]]
; CODE-NEXT: b 0x
; CODE-NEXT: b 0x
; CODE: brk #0x45e0
; CODE-NEXT: b 0x
; CODE: stur xzr, [{{x[0-9]+}}, #-0x18]
; CODE: ret
; CODE-LABEL: <narrow>:
; CODE: ldrh
; CODE: strh
; CODE: ldrb
; CODE: strb
; CODE-LABEL: section __rseq_failure:
; CODE: mov [[TRIES:w[0-9]+]], #0x64
; CODE: ldrsw [[CPU]], {{\[}}[[RSEQ]], #0x4]
; CODE-NEXT: tbnz [[CPU]], #0x3f
; CODE: str [[SUM]], {{\[}}[[CPU]]]
; CODE-NEXT: b 0x
; CODE: brk #0x45e0
; CODE-NEXT: subs [[TRIES]], [[TRIES]], #0x1
; CODE-NEXT: b.ne 0x
; CODE-NEXT: mov [[CPU]], #0x40000000
; CODE: ldxr
; CODE: stxr [[TRIES]]
; CODE: ldxrh
; CODE: stxrh
; CODE: ldxrb
; CODE: stxrb
; RELOC: __rseq_cs
; RELOC: R_AARCH64_ABS64
define void @add(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 5
  store i64 %v1, ptr %p
  ret void
}

define void @narrow(ptr %key, i16 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %p2 = getelementptr i8, ptr %p, i64 3
  %v = load i16, ptr %p
  %v1 = or i16 %v, %x
  store i16 %v1, ptr %p
  %w = load i8, ptr %p2
  %w1 = add i8 %w, 1
  store i8 %w1, ptr %p2
  ret void
}
