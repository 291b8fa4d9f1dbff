; What reads, changes and writes a per-CPU value and has no exact form is left as written, with a remark that says why; what is no
; update is left without one.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact;nr-cpus=4>' --maps=%S/Inputs/rmw.maps %s --remarks=- -o %t.ll 2>%t.yaml
; RUN: %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=REMARK < %t.yaml
; CHECK-NOT: asm
; CHECK-NOT: atomicrmw add
target triple = "x86_64-unknown-linux-gnu"

@counts = external global i8
@shared = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)
declare ptr @shunt_map_lookup_of(ptr, ptr, i32)
declare i32 @shunt_map_update(ptr, ptr, ptr, i64)
declare void @opaque()

; REMARK-NOT: InexactUpdate
; REMARK: InexactUpdate
; REMARK: Function: {{.*}}multiply
; REMARK: none of add, or, and, xor
define void @multiply(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = mul i64 %v, 3
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}twice
; REMARK: both sides
define void @twice(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, %v
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}reversed
; REMARK: subtracted
define void @reversed(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = sub i64 %x, %v
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}mixed
; REMARK: more than one kind
define void @mixed(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, %x
  %v2 = and i64 %v1, 255
  store i64 %v2, ptr %p
  ret void
}

; The upper half is cut off on the way: no addition of 64 bits.
; REMARK: Function: {{.*}}cut
define void @cut(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %t = trunc i64 %v to i32
  %w = zext i32 %t to i64
  %v1 = add i64 %w, 1
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}odd
; REMARK: 8, 16, 32 and 64 bits
define void @odd(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i24, ptr %p
  %v1 = add i24 %v, 1
  store i24 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}disturbed
; REMARK: between load and store
define void @disturbed(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  store i64 5, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}updated
; REMARK: between load and store
define void @updated(ptr %key, ptr %new) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %e = call i32 @shunt_map_update(ptr @counts, ptr %key, ptr %new, i64 0)
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; The same key once more: the same place by another pointer.
; REMARK: Function: {{.*}}twofold
; REMARK: between load and store
define void @twofold(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %q = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  store i64 7, ptr %q
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; The second time round, the store has written what the load read.
; REMARK: Function: {{.*}}loop
; REMARK: between load and store
define void @loop(ptr %key, i64 %n) {
entry:
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  %v1 = add i64 %v, %i
  store i64 %v1, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %again, label %out
out:
  ret void
}

; REMARK: Function: {{.*}}named_cpu
; REMARK: of a given CPU
define void @named_cpu(ptr %key, i32 %cpu) {
  %p = call ptr @shunt_map_lookup_of(ptr @counts, ptr %key, i32 %cpu)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}kinds
; REMARK: several kinds
define void @kinds(ptr %key, i1 %c) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %q = call ptr @shunt_map_lookup(ptr @shared, ptr %key)
  %r = select i1 %c, ptr %p, ptr %q
  %v = load i64, ptr %r
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %r
  ret void
}

; REMARK: Function: {{.*}}loud
; REMARK: volatile
define void @loud(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store volatile i64 %v1, ptr %p
  ret void
}

; REMARK: Function: {{.*}}fetched
; REMARK: result is used
define i64 @fetched(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %old = atomicrmw xchg ptr %p, i64 3 monotonic
  ret i64 %old
}

; REMARK: Function: {{.*}}given
; REMARK: comes from a caller
define internal void @given(ptr %record) {
  %v = load i64, ptr %record
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %record
  ret void
}
define void @gives(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  call void @given(ptr %p)
  ret void
}

; Not updates: a plain store, a store of another place's value, a shared value while only per-CPU ones are to be exact.
; REMARK-NOT: InexactUpdate
define void @no_update(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  store i64 %x, ptr %p
  %n = getelementptr i8, ptr %p, i64 8
  %v = load i64, ptr %n
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %s = call ptr @shunt_map_lookup(ptr @shared, ptr %key)
  %w = load i64, ptr %s
  %w1 = add i64 %w, 1
  store i64 %w1, ptr %s
  ret void
}
