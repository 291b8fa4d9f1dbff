target datalayout = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
target triple = "bpf"

%struct.anon = type { ptr, ptr, ptr, ptr }
%struct.anon.0 = type { ptr, ptr, ptr, ptr }

@counts = dso_local global %struct.anon zeroinitializer, section ".maps", align 8
@flows = dso_local global %struct.anon.0 zeroinitializer, section ".maps", align 8
@count.____fmt = internal constant [3 x i8] c"%u\00", align 1
@license = dso_local global [13 x i8] c"Dual MIT/GPL\00", section "license", align 1
@llvm.compiler.used = appending global [4 x ptr] [ptr @count, ptr @counts, ptr @flows, ptr @license], section "llvm.metadata"

; Function Attrs: nounwind
define dso_local range(i32 0, 3) i32 @count(ptr nocapture noundef readonly %0) #0 section "xdp" {
  %2 = alloca i32, align 4
  %3 = alloca i64, align 8
  %4 = alloca i64, align 8
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %2) #2
  %5 = getelementptr inbounds i8, ptr %0, i64 12
  %6 = load i32, ptr %5, align 4, !tbaa !3
  %7 = and i32 %6, 255
  store i32 %7, ptr %2, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %3) #2
  %8 = getelementptr inbounds i8, ptr %0, i64 16
  %9 = load i32, ptr %8, align 4, !tbaa !9
  %10 = zext i32 %9 to i64
  store i64 %10, ptr %3, align 8, !tbaa !10
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %4) #2
  store i64 1, ptr %4, align 8, !tbaa !10
  %11 = call ptr inttoptr (i64 1 to ptr)(ptr noundef nonnull @counts, ptr noundef nonnull %2) #2
  %12 = icmp eq ptr %11, null
  br i1 %12, label %18, label %13

13:                                               ; preds = %1
  %14 = call i32 inttoptr (i64 8 to ptr)() #2
  %15 = zext i32 %14 to i64
  %16 = load i64, ptr %11, align 8, !tbaa !10
  %17 = add i64 %16, %15
  store i64 %17, ptr %11, align 8, !tbaa !10
  br label %18

18:                                               ; preds = %13, %1
  %19 = call ptr inttoptr (i64 1 to ptr)(ptr noundef nonnull @flows, ptr noundef nonnull %3) #2
  %20 = icmp eq ptr %19, null
  br i1 %20, label %21, label %24

21:                                               ; preds = %18
  %22 = call i64 inttoptr (i64 2 to ptr)(ptr noundef nonnull @flows, ptr noundef nonnull %3, ptr noundef nonnull %4, i64 noundef 1) #2
  %23 = icmp slt i64 %22, 0
  br i1 %23, label %32, label %24

24:                                               ; preds = %21, %18
  %25 = call i64 inttoptr (i64 5 to ptr)() #2
  %26 = icmp eq i64 %25, 0
  br i1 %26, label %27, label %29

27:                                               ; preds = %24
  %28 = call i64 inttoptr (i64 3 to ptr)(ptr noundef nonnull @flows, ptr noundef nonnull %3) #2
  br label %29

29:                                               ; preds = %27, %24
  %30 = load i32, ptr %2, align 4, !tbaa !8
  %31 = call i64 (ptr, i32, ...) inttoptr (i64 6 to ptr)(ptr noundef nonnull @count.____fmt, i32 noundef 3, i32 noundef %30) #2
  br label %32

32:                                               ; preds = %21, %29
  %33 = phi i32 [ 2, %29 ], [ 0, %21 ]
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %4) #2
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %3) #2
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %2) #2
  ret i32 %33
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #1

attributes #0 = { nounwind "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { nounwind }

!llvm.module.flags = !{!0, !1}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 7, !"frame-pointer", i32 2}
!3 = !{!4, !5, i64 12}
!4 = !{!"xdp_md", !5, i64 0, !5, i64 4, !5, i64 8, !5, i64 12, !5, i64 16, !5, i64 20}
!5 = !{!"int", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C/C++ TBAA"}
!8 = !{!5, !5, i64 0}
!9 = !{!4, !5, i64 16}
!10 = !{!11, !11, i64 0}
!11 = !{!"long long", !6, i64 0}
