; ARRAY lookups: bound, stride, base, NULL outside.
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --spectre-v1 %s | %FileCheck %s --check-prefix=MASK
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 - | %FileCheck %s
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; COUNTS: array_lookups 10
; COUNTS: missed 1
target triple = "x86_64-unknown-linux-gnu"

@array = external global i8
@fixed = external global i8
@array_key8 = external global i8
@three = internal constant i32 3
@config = global { i16, i16, i32 } zeroinitializer, align 4
declare ptr @shunt_map_lookup(ptr, ptr)
declare void @llvm.lifetime.start.p0(i64, ptr)
declare void @escape(ptr)

; value size 12: stride 16 without being told
; CHECK-LABEL: define ptr @variable(
; CHECK: %key = load i32, ptr %slot, align 4
; CHECK-NEXT: [[IN:%.*]] = icmp ult i32 %key, 10
; CHECK-NEXT: [[WIDE:%.*]] = zext i32 %key to i64
; CHECK-NEXT: [[OFF:%.*]] = mul i64 [[WIDE]], 16
; CHECK-NEXT: %values = load ptr, ptr getelementptr inbounds (i8, ptr @array, i64 24), align 8
; CHECK-NEXT: [[PTR:%.*]] = getelementptr inbounds i8, ptr %values, i64 [[OFF]]
; CHECK-NEXT: %value = select i1 [[IN]], ptr [[PTR]], ptr null
; CHECK-NEXT: ret ptr %value
; The comparison sees the key as it is, the address a masked one.
; MASK-LABEL: define ptr @variable(
; MASK: [[IN:%.*]] = icmp ult i32 %key, 10
; MASK-NEXT: [[MASKED:%.*]] = and i32 %key, 15
; MASK-NEXT: zext i32 [[MASKED]] to i64
define ptr @variable(i32 %k) {
  %slot = alloca i32, align 4
  store i32 %k, ptr %slot, align 4
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %slot)
  ret ptr %value
}

; CHECK-LABEL: define ptr @fixed_base(
; CHECK: mul i64 {{.*}}, 8
; CHECK-NEXT: getelementptr inbounds i8, ptr inttoptr (i64 1048576 to ptr), i64
define ptr @fixed_base(ptr %key) {
  %value = call ptr @shunt_map_lookup(ptr @fixed, ptr %key)
  ret ptr %value
}

; Nothing is known of an argument's alignment.
; CHECK-LABEL: define ptr @unaligned(
; CHECK-NEXT: load i32, ptr %key, align 1
define ptr @unaligned(ptr %key) {
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %key)
  ret ptr %value
}

; CHECK-LABEL: define ptr @odd_offset(
; CHECK: load i32, ptr %inside, align 2
define ptr @odd_offset() {
  %slot = alloca [16 x i8], align 8
  %inside = getelementptr { i16, [6 x i8] }, ptr %slot, i64 1, i32 1, i64 4
  call void @escape(ptr %slot)
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %inside)
  ret ptr %value
}

; CHECK-LABEL: define ptr @in_global(
; CHECK: load i32, ptr getelementptr inbounds ({ i16, i16, i32 }, ptr @config, i64 0, i32 2), align 4
; CHECK: load i32, ptr getelementptr inbounds ({ i16, i16, i32 }, ptr @config, i64 0, i32 1), align 2
define ptr @in_global() {
  %a = call ptr @shunt_map_lookup(ptr @array, ptr getelementptr inbounds ({ i16, i16, i32 }, ptr @config, i64 0, i32 2))
  %b = call ptr @shunt_map_lookup(ptr @array, ptr getelementptr inbounds ({ i16, i16, i32 }, ptr @config, i64 0, i32 1))
  ret ptr %b
}

; A constant key in range needs no comparison.
; CHECK-LABEL: define ptr @constant(
; CHECK-NOT: icmp
; CHECK: %value = getelementptr inbounds i8, ptr %values, i64 48
; CHECK-NOT: select
; CHECK: ret ptr %value
define ptr @constant() {
  %slot = alloca i32, align 4
  call void @llvm.lifetime.start.p0(i64 4, ptr %slot)
  store i32 3, ptr %slot, align 4
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %slot)
  ret ptr %value
}

; CHECK-LABEL: define ptr @constant_global(
; CHECK: getelementptr inbounds i8, ptr %values, i64 48
define ptr @constant_global() {
  %value = call ptr @shunt_map_lookup(ptr @array, ptr @three)
  ret ptr %value
}

; CHECK-LABEL: define ptr @constant_outside(
; CHECK: ret ptr null
define ptr @constant_outside() {
  %slot = alloca i32, align 4
  store i32 10, ptr %slot, align 4
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %slot)
  ret ptr %value
}

; Somebody else may write to the slot: its key is not constant.
; CHECK-LABEL: define ptr @escaped(
; CHECK: icmp ult i32 %key, 10
define ptr @escaped() {
  %slot = alloca i32, align 4
  store i32 3, ptr %slot, align 4
  call void @escape(ptr %slot)
  %value = call ptr @shunt_map_lookup(ptr @array, ptr %slot)
  ret ptr %value
}

; CHECK-LABEL: define ptr @wrong_key_size(
; CHECK-NEXT: call ptr @shunt_map_lookup(ptr @array_key8, ptr %key)
define ptr @wrong_key_size(ptr %key) {
  %value = call ptr @shunt_map_lookup(ptr @array_key8, ptr %key)
  ret ptr %value
}
