target datalayout = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
target triple = "bpf"

%struct.anon = type { ptr, ptr, ptr, ptr }
%struct.anon.0 = type { ptr, ptr, ptr, ptr }
%struct.xdp_md = type { i32, i32, i32, i32, i32, i32 }

@bpf_map_lookup_elem = internal global ptr inttoptr (i64 1 to ptr), align 8
@counts = dso_local global %struct.anon zeroinitializer, section ".maps", align 8
@bpf_get_smp_processor_id = internal global ptr inttoptr (i64 8 to ptr), align 8
@flows = dso_local global %struct.anon.0 zeroinitializer, section ".maps", align 8
@bpf_map_update_elem = internal global ptr inttoptr (i64 2 to ptr), align 8
@bpf_ktime_get_ns = internal global ptr inttoptr (i64 5 to ptr), align 8
@bpf_map_delete_elem = internal global ptr inttoptr (i64 3 to ptr), align 8
@count.____fmt = internal constant [3 x i8] c"%u\00", align 1
@bpf_trace_printk = internal global ptr inttoptr (i64 6 to ptr), align 8
@license = dso_local global [13 x i8] c"Dual MIT/GPL\00", section "license", align 1
@llvm.compiler.used = appending global [4 x ptr] [ptr @count, ptr @license, ptr @counts, ptr @flows], section "llvm.metadata"

; Function Attrs: noinline nounwind optnone
define dso_local i32 @count(ptr noundef %0) #0 section "xdp" {
  %2 = alloca i32, align 4
  %3 = alloca ptr, align 8
  %4 = alloca i32, align 4
  %5 = alloca i64, align 8
  %6 = alloca i64, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i64, align 8
  store ptr %0, ptr %3, align 8
  %9 = load ptr, ptr %3, align 8
  %10 = getelementptr inbounds %struct.xdp_md, ptr %9, i32 0, i32 3
  %11 = load i32, ptr %10, align 4
  %12 = and i32 %11, 255
  store i32 %12, ptr %4, align 4
  %13 = load ptr, ptr %3, align 8
  %14 = getelementptr inbounds %struct.xdp_md, ptr %13, i32 0, i32 4
  %15 = load i32, ptr %14, align 4
  %16 = zext i32 %15 to i64
  store i64 %16, ptr %5, align 8
  store i64 1, ptr %6, align 8
  %17 = load ptr, ptr @bpf_map_lookup_elem, align 8
  %18 = call ptr %17(ptr noundef @counts, ptr noundef %4)
  store ptr %18, ptr %7, align 8
  %19 = load ptr, ptr %7, align 8
  %20 = icmp ne ptr %19, null
  br i1 %20, label %21, label %28

21:                                               ; preds = %1
  %22 = load ptr, ptr @bpf_get_smp_processor_id, align 8
  %23 = call i32 %22()
  %24 = zext i32 %23 to i64
  %25 = load ptr, ptr %7, align 8
  %26 = load i64, ptr %25, align 8
  %27 = add i64 %26, %24
  store i64 %27, ptr %25, align 8
  br label %28

28:                                               ; preds = %21, %1
  %29 = load ptr, ptr @bpf_map_lookup_elem, align 8
  %30 = call ptr %29(ptr noundef @flows, ptr noundef %5)
  store ptr %30, ptr %7, align 8
  %31 = load ptr, ptr %7, align 8
  %32 = icmp ne ptr %31, null
  br i1 %32, label %38, label %33

33:                                               ; preds = %28
  %34 = load ptr, ptr @bpf_map_update_elem, align 8
  %35 = call i64 %34(ptr noundef @flows, ptr noundef %5, ptr noundef %6, i64 noundef 1)
  %36 = icmp slt i64 %35, 0
  br i1 %36, label %37, label %38

37:                                               ; preds = %33
  store i32 0, ptr %2, align 4
  br label %50

38:                                               ; preds = %33, %28
  %39 = load ptr, ptr @bpf_ktime_get_ns, align 8
  %40 = call i64 %39()
  %41 = icmp eq i64 %40, 0
  br i1 %41, label %42, label %45

42:                                               ; preds = %38
  %43 = load ptr, ptr @bpf_map_delete_elem, align 8
  %44 = call i64 %43(ptr noundef @flows, ptr noundef %5)
  br label %45

45:                                               ; preds = %42, %38
  %46 = load ptr, ptr @bpf_trace_printk, align 8
  %47 = load i32, ptr %4, align 4
  %48 = call i64 (ptr, i32, ...) %46(ptr noundef @count.____fmt, i32 noundef 3, i32 noundef %47)
  store i64 %48, ptr %8, align 8
  %49 = load i64, ptr %8, align 8
  store i32 2, ptr %2, align 4
  br label %50

50:                                               ; preds = %45, %37
  %51 = load i32, ptr %2, align 4
  ret i32 %51
}

attributes #0 = { noinline nounwind optnone "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }

!llvm.module.flags = !{!0, !1}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 7, !"frame-pointer", i32 2}
