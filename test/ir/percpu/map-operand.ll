; Which map a lookup is of: by name, by number, and through what front ends put between the two.
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --remarks=%t.yaml %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=MISSED < %t.yaml
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
target triple = "x86_64-unknown-linux-gnu"

@array = external global i8
@array_b = external global i8
@fixed = external global i8
@fixed_b = external global i8
@unknown = external global i8
@holder = internal constant ptr @array
@variable_holder = internal global ptr @array
@written_holder = internal global ptr @array
@public_holder = global ptr @array
declare ptr @shunt_map_lookup(ptr, ptr)
declare ptr @llvm.bpf.passthrough.p0.p0(i32, ptr)

; CHECK-LABEL: define ptr @by_address(
; CHECK: load ptr, ptr getelementptr inbounds (i8, ptr inttoptr (i64 67108864 to ptr), i64 24), align 8
define ptr @by_address(ptr %k) {
  %v = call ptr @shunt_map_lookup(ptr inttoptr (i64 67108864 to ptr), ptr %k)
  ret ptr %v
}

; CHECK-LABEL: define i64 @by_handle(
; CHECK: load ptr, ptr getelementptr inbounds (i8, ptr inttoptr (i64 117440512 to ptr), i64 24), align 8
define i64 @by_handle(i64 %k) {
  %v = call i64 @shunt_map_lookup(i64 7, i64 %k)
  ret i64 %v
}

; A handle without an address is enough where the values' address is known, and not elsewhere.
; CHECK-LABEL: define void @handle_only(
; CHECK: getelementptr inbounds i8, ptr inttoptr (i64 3145728 to ptr)
; CHECK: call i64 @shunt_map_lookup(i64 9, i64 %k)
define void @handle_only(i64 %k) {
  %a = call i64 @shunt_map_lookup(i64 11, i64 %k)
  %b = call i64 @shunt_map_lookup(i64 9, i64 %k)
  ret void
}

; CHECK-LABEL: define ptr @through_casts(
; CHECK-NOT: call ptr @shunt_map_lookup
; CHECK: load ptr, ptr getelementptr inbounds (i8, ptr @array, i64 24)
; CHECK-NOT: call ptr @shunt_map_lookup
; CHECK: ret ptr
define ptr @through_casts(ptr %k) {
  %i = ptrtoint ptr @array to i64
  %f = freeze i64 %i
  %p = inttoptr i64 %f to ptr
  %q = getelementptr [1 x i8], ptr %p, i64 0, i64 0
  %r = call ptr @llvm.bpf.passthrough.p0.p0(i32 1, ptr %q)
  %v = call ptr @shunt_map_lookup(ptr %r, ptr %k)
  ret ptr %v
}

; CHECK-LABEL: define void @through_memory(
; CHECK-COUNT-3: load ptr, ptr getelementptr inbounds (i8, ptr @array, i64 24)
; CHECK: ret void
define void @through_memory(ptr %k) {
  %slot = alloca ptr
  store ptr @array, ptr %slot
  %a = load ptr, ptr %slot
  %b = load ptr, ptr @holder
  %c = load ptr, ptr @variable_holder
  call ptr @shunt_map_lookup(ptr %a, ptr %k)
  call ptr @shunt_map_lookup(ptr %b, ptr %k)
  call ptr @shunt_map_lookup(ptr %c, ptr %k)
  ret void
}

; Two maps of one geometry: the base comes from the map that it is.
; CHECK-LABEL: define ptr @selected(
; CHECK: %map = select i1 %c, ptr @array, ptr @array_b
; CHECK: [[AT:%.*]] = getelementptr inbounds i8, ptr %map, i64 24
; CHECK-NEXT: load ptr, ptr [[AT]], align 8
define ptr @selected(ptr %k, i1 %c) {
  %map = select i1 %c, ptr @array, ptr @array_b
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  ret ptr %v
}

; Neither of two known bases may be taken for both.
; CHECK-LABEL: define ptr @selected_fixed(
; CHECK: [[AT:%.*]] = getelementptr inbounds i8, ptr %map, i64 24
; CHECK-NEXT: load ptr, ptr [[AT]], align 8
define ptr @selected_fixed(ptr %k, i1 %c) {
  %map = select i1 %c, ptr @fixed, ptr @fixed_b
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  ret ptr %v
}

; CHECK-LABEL: define ptr @looped(
; CHECK: getelementptr inbounds i8, ptr %map, i64 24
define ptr @looped(ptr %k, i1 %c) {
entry:
  br label %loop
loop:
  %map = phi ptr [ @array, %entry ], [ %map, %loop ], [ @array_b, %other ]
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  %again = icmp eq ptr %v, null
  br i1 %again, label %loop, label %other
other:
  br i1 %c, label %loop, label %out
out:
  ret ptr %v
}

; CHECK-LABEL: define internal ptr @local(
; CHECK: load ptr, ptr getelementptr inbounds (i8, ptr @array, i64 24)
define internal ptr @local(ptr %map, ptr %k) {
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  ret ptr %v
}

define void @callers(ptr %k) {
  call ptr @local(ptr @array, ptr %k)
  call ptr @local(ptr @array, ptr %k)
  call ptr @taken(ptr @array, ptr %k)
  ret void
}

; MISSED: Name: UnknownMap
; MISSED: handle of a map whose address is not known
define internal ptr @taken(ptr %map, ptr %k) {
; MISSED: Function: 'taken'
; MISSED: argument of a function whose address is taken
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  ret ptr %v
}
@table = global ptr @taken

define ptr @public(ptr %map, ptr %k) {
; MISSED: Function: 'public'
; MISSED: argument of a function that others may call
  %v = call ptr @shunt_map_lookup(ptr %map, ptr %k)
  ret ptr %v
}

; CHECK-LABEL: define void @left(
; CHECK-COUNT-8: call ptr @shunt_map_lookup(
define void @left(ptr %k, i1 %c, ptr %where) {
  %slot = alloca ptr
  store ptr @array, ptr %slot
  store ptr @array_b, ptr %slot
  %two = load ptr, ptr %slot
  store ptr @array_b, ptr @written_holder
  %written = load ptr, ptr @written_holder
  %public = load ptr, ptr @public_holder
  %other = select i1 %c, ptr @array, ptr @fixed
  %null = select i1 %c, ptr @array, ptr null
  %loaded = load ptr, ptr %where
; MISSED: a global that no registered map is named after
  call ptr @shunt_map_lookup(ptr @unknown, ptr %k)
; MISSED: loaded from memory that may hold several maps
  call ptr @shunt_map_lookup(ptr %two, ptr %k)
; MISSED: loaded from memory that may hold several maps
  call ptr @shunt_map_lookup(ptr %written, ptr %k)
; MISSED: loaded from memory that may hold several maps
  call ptr @shunt_map_lookup(ptr %public, ptr %k)
; MISSED: may be maps of different type or size
  call ptr @shunt_map_lookup(ptr %other, ptr %k)
; MISSED: may be null
  call ptr @shunt_map_lookup(ptr %null, ptr %k)
; MISSED: loaded from memory
  call ptr @shunt_map_lookup(ptr %loaded, ptr %k)
; MISSED: a number that is neither the address nor the handle of a registered map
  call ptr @shunt_map_lookup(ptr inttoptr (i64 12345 to ptr), ptr %k)
  ret void
}
