; Exact adds become restartable sequences where the thread's struct rseq is known, and stay calls elsewhere.
; RUN: %shunt-opt --passes='shunt-percpu<cpu=rseq:-160>' --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt --passes=shunt-percpu %s | %FileCheck %s
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes='shunt-percpu<cpu=rseq:-160>' - | %FileCheck %s
; RUN: %shunt-opt --passes=shunt-percpu --cpu=call --remarks=%t.yaml %s | %FileCheck %s --check-prefix=LEFT
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: %llvm/llc -filetype=obj %t.ll -o %t.o
; COUNTS: exact_updates 2
; WHY-COUNT-2: Name: NoRseq
target triple = "x86_64-unknown-linux-gnu"

@counter = external global i64
declare void @shunt_percpu_add64(ptr, i64)
declare void @shunt_percpu_add32(ptr, i32)

; CHECK-LABEL: define void @f(
; CHECK-NOT: call void @shunt
; CHECK-COUNT-2: __rseq_cs
; CHECK: ret void
; LEFT: call void @shunt_percpu_add64(ptr @counter, i64 %v)
; LEFT: call void @shunt_percpu_add32(ptr @counter, i32 %w)
define void @f(i64 %v, i32 %w) {
  call void @shunt_percpu_add64(ptr @counter, i64 %v)
  call void @shunt_percpu_add32(ptr @counter, i32 %w)
  ret void
}
