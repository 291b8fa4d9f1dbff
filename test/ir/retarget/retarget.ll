; A BPF module becomes one for the host or another machine: attributes, intrinsics, sections; the program's section stays readable.
; RUN: %shunt-opt --retarget=x86_64-unknown-linux-gnu --passes= %s -o %t.ll && %FileCheck %s < %t.ll
; RUN: %shunt-opt --retarget=aarch64-linux-gnu --passes= %s | %FileCheck %s --check-prefixes=CHECK,ARM
; Code generation takes it: both variables in `license` went apart.
; RUN: %llvm/llc -filetype=obj %t.ll -o %t.o
; RUN: %shunt-opt --retarget=aarch64-linux-gnu %s | %llvm/llc -filetype=obj -o %t.arm.o
; Again is nothing to do.
; RUN: %shunt-opt --retarget=x86_64-unknown-linux-gnu --passes= %t.ll -o %t.again.ll && grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
target datalayout = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
target triple = "bpf"

; ARM: target triple = "aarch64-unknown-linux-gnu"
; CHECK: @license = global [4 x i8] c"GPL\00"{{$}}
; CHECK: @license_2 = unnamed_addr constant [4 x i8] c"GPL\00"{{$}}
; CHECK: @counts = global { ptr, ptr } zeroinitializer, section ".maps"
; CHECK-NOT: llvm.unused
@license = global [4 x i8] c"GPL\00", section "license"
@license_2 = unnamed_addr constant [4 x i8] c"GPL\00", section "license"
@counts = global { ptr, ptr } zeroinitializer, section ".maps", align 8
@"llvm.unused:0:1$0:1" = external global i64

declare ptr @llvm.bpf.passthrough.p0.p0(i32, ptr)
declare i1 @llvm.bpf.compare.i32.i32(i32, i32, i32)

; CHECK: define i32 @prog(ptr %ctx) #[[ATTRIBUTES:[0-9]+]] {
; CHECK-NEXT: call void asm sideeffect "", "~{memory}"()
; CHECK-NEXT: %v = load i32, ptr %ctx
; CHECK-NEXT: %[[C:[0-9a-z]+]] = icmp ugt i32 %v, 7
; CHECK-NEXT: zext i1 %[[C]] to i32
define i32 @prog(ptr %ctx) #0 section "xdp" {
  call void asm sideeffect "", "~{memory}"()
  %p = call ptr @llvm.bpf.passthrough.p0.p0(i32 1, ptr %ctx)
  %v = load i32, ptr %p
  %c = call i1 @llvm.bpf.compare.i32.i32(i32 34, i32 %v, i32 7)
  %r = zext i1 %c to i32
  ret i32 %r
}
; CHECK-NOT: llvm.bpf
; CHECK: attributes #[[ATTRIBUTES]] = { nounwind "shunt-section"="xdp" }
attributes #0 = { nounwind "target-cpu"="v3" "target-features"="+alu32" "tune-cpu"="v3" }
