; exact-shared: updates of values that all CPUs share become atomic, beside those of per-CPU values.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact-shared>' --maps=%S/Inputs/rmw.maps %s | %FileCheck %s
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq;rmw=exact>' --maps=%S/Inputs/rmw.maps %s | %FileCheck %s --check-prefix=AOT
target triple = "x86_64-unknown-linux-gnu"

@counts = external global i8
@shared = external global i8
@shared_hash = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)

; CHECK-LABEL: @shared_values(
; CHECK: atomicrmw add ptr %p, i64 1 monotonic
; CHECK: atomicrmw or ptr %q, i64 %x monotonic
; CHECK-NOT: store i64
; CHECK: addq
; AOT-LABEL: @shared_values(
; AOT: %rseq{{.*}} = load i64, ptr @__rseq_offset
; AOT: movslq %fs:4($4), $0
; AOT-SAME: "=&r,=&r,r,re,r,
; AOT-SAME: i64 %rseq{{.*}})
define void @shared_values(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @shared, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %q = call ptr @shunt_map_lookup(ptr @shared_hash, ptr %key)
  %w = load i64, ptr %q
  %w1 = or i64 %w, %x
  store i64 %w1, ptr %q
  %c = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %u = load i64, ptr %c
  %u1 = add i64 %u, 1
  store i64 %u1, ptr %c
  ret void
}
