ring 4096
query 0 -> 0
query 1 -> 4096
query 2 -> 0
query 3 -> 0
query 4 -> 0
query 18446744073709551615 -> 0
take -> nothing
headers -> none
lookup -> error 524
update -> error 524
delete -> error 524
next -> error 524
output 0 0 -> ok
reserve 0 0 submit 0 -> avail 16 at 16
output 1 0 -> ok
reserve 1 0 submit 0 -> avail 48 at 48
output 5 0 -> ok
reserve 5 0 submit 0 -> avail 80 at 80
output 8 0 -> ok
reserve 8 0 submit 0 -> avail 112 at 112
output 9 0 -> ok
output 8 1 -> ok
reserve 8 1 submit 0 -> null
reserve 5 0 submit 1 -> avail 168 at 168
reserve 5 0 discard 1 -> avail 184 at 184
output 8 2 -> ok
reserve 8 2 submit 0 -> null
reserve 5 0 submit 2 -> avail 216 at 216
reserve 5 0 discard 2 -> avail 232 at 232
output 8 3 -> ok
reserve 8 3 submit 0 -> null
reserve 5 0 submit 3 -> avail 264 at 264
reserve 5 0 discard 3 -> avail 280 at 280
output 8 4 -> error 22
reserve 8 4 submit 0 -> null
reserve 5 0 submit 4 -> avail 296 at 296
reserve 5 0 discard 4 -> avail 312 at 312
output 8 5 -> error 22
reserve 8 5 submit 0 -> null
reserve 5 0 submit 5 -> avail 328 at 328
reserve 5 0 discard 5 -> avail 344 at 344
output 8 4294967296 -> error 22
reserve 8 4294967296 submit 0 -> null
reserve 5 0 submit 4294967296 -> avail 360 at 360
reserve 5 0 discard 4294967296 -> avail 376 at 376
output 8 9223372036854775808 -> error 22
reserve 8 9223372036854775808 submit 0 -> null
reserve 5 0 submit 9223372036854775808 -> avail 392 at 392
reserve 5 0 discard 9223372036854775808 -> avail 408 at 408
output 8 18446744073709551615 -> error 22
reserve 8 18446744073709551615 submit 0 -> null
reserve 5 0 submit 18446744073709551615 -> avail 424 at 424
reserve 5 0 discard 18446744073709551615 -> avail 440 at 440
headers -> 00000000 00000000 00000001 00000001 00000005 00000005 00000008 00000008 00000009 00000008 00000005 40000005 00000008 00000005 40000005 00000008 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005
query 0 -> 440
query 2 -> 0
query 3 -> 440
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes b2
take -> 1 bytes d1
take -> 5 bytes f0f7fe050c
take -> 5 bytes 0f161d242b
take -> 8 bytes 2e353c434a51585f
take -> 8 bytes 4d545b626970777e
take -> 9 bytes 6c737a81888f969da4
take -> 8 bytes 8b9299a0a7aeb5bc
take -> 5 bytes c9d0d7dee5
take -> 8 bytes 070e151c232a3138
take -> 5 bytes 454c535a61
take -> 8 bytes 838a91989fa6adb4
take -> 5 bytes c1c8cfd6dd
take -> 5 bytes 3d444b5259
take -> 5 bytes b9c0c7ced5
take -> 5 bytes 353c434a51
take -> 5 bytes b1b8bfc6cd
take -> 5 bytes 2d343b4249
query 0 -> 16
query 2 -> 424
query 3 -> 440
output 0 0 -> ok
query 0 -> 24
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 48 at 472
headers -> 40000005 00000000 00000000 00000001
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes 0d
query 2 -> 472
reserve 0 0 submit 0 -> avail 8 at 480
query 0 -> 8
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 32 at 504
headers -> 00000000 00000000 00000001
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes 24
query 2 -> 504
output 1 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 544
headers -> 00000001 00000000 00000001
take -> 1 bytes de
take -> 0 bytes 
take -> 1 bytes 3b
query 2 -> 544
reserve 1 0 submit 0 -> avail 16 at 560
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 584
headers -> 00000001 00000000 00000001
take -> 1 bytes f5
take -> 0 bytes 
take -> 1 bytes 52
query 2 -> 584
output 5 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 624
headers -> 00000005 00000000 00000001
take -> 5 bytes 0c131a2128
take -> 0 bytes 
take -> 1 bytes 69
query 2 -> 624
reserve 5 0 submit 0 -> avail 16 at 640
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 664
headers -> 00000005 00000000 00000001
take -> 5 bytes 232a31383f
take -> 0 bytes 
take -> 1 bytes 80
query 2 -> 664
output 8 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 704
headers -> 00000008 00000000 00000001
take -> 8 bytes 3a41484f565d646b
take -> 0 bytes 
take -> 1 bytes 97
query 2 -> 704
reserve 8 0 submit 0 -> avail 16 at 720
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 744
headers -> 00000008 00000000 00000001
take -> 8 bytes 51585f666d747b82
take -> 0 bytes 
take -> 1 bytes ae
query 2 -> 744
output 64 0 -> ok
query 0 -> 72
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 96 at 840
headers -> 00000040 00000000 00000001
take -> 64 bytes 686f767d848b9299a0a7aeb5bcc3cad1.. 07aafdaacf6b2e25
take -> 0 bytes 
take -> 1 bytes c5
query 2 -> 840
reserve 64 0 submit 0 -> avail 72 at 912
query 0 -> 72
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 96 at 936
headers -> 00000040 00000000 00000001
take -> 64 bytes 7f868d949ba2a9b0b7bec5ccd3dae1e8.. e1bce8aa3d8e4fa5
take -> 0 bytes 
take -> 1 bytes dc
query 2 -> 936
output 1000 0 -> ok
query 0 -> 1008
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 1032 at 1968
headers -> 000003e8 00000000 00000001
take -> 1000 bytes 969da4abb2b9c0c7ced5dce3eaf1f8ff.. 24c929e69c91ec7d
take -> 0 bytes 
take -> 1 bytes f3
query 2 -> 1968
reserve 1000 0 submit 0 -> avail 1008 at 2976
query 0 -> 1008
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 1032 at 3000
headers -> 000003e8 00000000 00000001
take -> 1000 bytes adb4bbc2c9d0d7dee5ecf3fa01080f16.. 4bbc2863d2033735
take -> 0 bytes 
take -> 1 bytes 0a
query 2 -> 3000
output 2048 0 -> ok
query 0 -> 2056
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 2080 at 5080
headers -> 00000800 00000000 00000001
take -> 2048 bytes c4cbd2d9e0e7eef5fc030a11181f262d.. 6699f81bd0993b25
take -> 0 bytes 
take -> 1 bytes 21
query 2 -> 5080
reserve 2048 0 submit 0 -> avail 2056 at 7136
query 0 -> 2056
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 2080 at 7160
headers -> 00000800 00000000 00000001
take -> 2048 bytes dbe2e9f0f7fe050c131a21282f363d44.. 29a809502cf16325
take -> 0 bytes 
take -> 1 bytes 38
query 2 -> 7160
output 4079 0 -> ok
query 0 -> 4088
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00000fef
take -> 4079 bytes f2f900070e151c232a31383f464d545b.. 88393bc57c821d6c
take -> nothing
take -> nothing
query 2 -> 11248
reserve 4079 0 submit 0 -> avail 4088 at 15336
query 0 -> 4088
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00000fef
take -> 4079 bytes 0910171e252c333a41484f565d646b72.. ae2fd587c6319955
take -> nothing
take -> nothing
query 2 -> 15336
output 4080 0 -> ok
query 0 -> 4088
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00000ff0
take -> 4080 bytes 20272e353c434a51585f666d747b8289.. efa173c861a491e5
take -> nothing
take -> nothing
query 2 -> 19424
reserve 4080 0 submit 0 -> avail 4088 at 23512
query 0 -> 4088
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00000ff0
take -> 4080 bytes 373e454c535a61686f767d848b9299a0.. 6fbd6c9cb713f625
take -> nothing
take -> nothing
query 2 -> 23512
output 4081 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23536
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes ab
take -> nothing
query 2 -> 23536
reserve 4081 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23560
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes c2
take -> nothing
query 2 -> 23560
output 4088 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23584
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes d9
take -> nothing
query 2 -> 23584
reserve 4088 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23608
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes f0
take -> nothing
query 2 -> 23608
output 4096 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23632
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 07
take -> nothing
query 2 -> 23632
reserve 4096 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23656
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 1e
take -> nothing
query 2 -> 23656
output 8192 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23680
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 35
take -> nothing
query 2 -> 23680
reserve 8192 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 23704
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 4c
take -> nothing
query 2 -> 23704
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> ok
output 248 0 -> error 11
output 241 0 -> error 11
output 240 0 -> ok
reserve 0 0 submit 0 -> null
query 0 -> 4088
take -> 248 bytes 060d141b222930373e454c535a61686f.. 2bd3e473b726b62d
output 249 0 -> error 11
output 248 0 -> ok
reserve 0 0 submit 0 -> null
take -> 248 bytes 252c333a41484f565d646b727980878e.. be403f220fcd0e35
take -> 248 bytes 444b525960676e757c838a91989fa6ad.. 79696a212a4eedf5
take -> 248 bytes 636a71787f868d949ba2a9b0b7bec5cc.. 277c81a739ffa1d5
take -> 248 bytes 828990979ea5acb3bac1c8cfd6dde4eb.. e0d48ceaa4af7efd
take -> 248 bytes a1a8afb6bdc4cbd2d9e0e7eef5fc030a.. a1fe6d9aaa0b8f15
take -> 248 bytes c0c7ced5dce3eaf1f8ff060d141b2229.. 1a9c8234f71d4915
take -> 248 bytes dfe6edf4fb020910171e252c333a4148.. d66fdba325067ea5
take -> 248 bytes fe050c131a21282f363d444b52596067.. d741ef5fe5173d7d
take -> 248 bytes 1d242b323940474e555c636a71787f86.. c7f94113d799c655
take -> 248 bytes 3c434a51585f666d747b828990979ea5.. 0e3831ee27d2db75
take -> 248 bytes 5b626970777e858c939aa1a8afb6bdc4.. 5129cfa60efbec15
take -> 248 bytes 7a81888f969da4abb2b9c0c7ced5dce3.. b9e3710f09e763ad
take -> 248 bytes 99a0a7aeb5bcc3cad1d8dfe6edf4fb02.. 14e914bc97afb055
take -> 248 bytes b8bfc6cdd4dbe2e9f0f7fe050c131a21.. cb2023ac36830bb5
take -> 240 bytes 151c232a31383f464d545b626970777e.. a91f6faee6f5d985
take -> 248 bytes b0b7bec5ccd3dae1e8eff6fd040b1219.. 5b27deb5398c5f35
take -> nothing
reserve 64 0 hold submit 0 -> avail 72 at 28120, header 80000040
reserve 5 0 output 9 0 hold submit 0 -> avail 88 at 28136, ok, header 80000005
reserve 1000 0 bare output 4096 0 hold submit 0 -> avail 1120 at 29168, error 11, header 800003e8
reserve 1 0 bare output 8 4 hold submit 0 -> avail 1136 at 29184, error 22, header 80000001
headers -> 00000040 00000005 00000009 000003e8 00000001
take -> 64 bytes fd040b121920272e353c434a51585f66.. 1688c4ea0104a6a5
query 2 -> 28120
take -> 5 bytes 1c232a3138
take -> 9 bytes 1c232a31383f464d54
take -> 1000 bytes fd040b121920272e353c434a51585f66.. ff445801988f5aed
query 2 -> 29168
reserve 64 0 hold discard 0 -> avail 88 at 29256, header 80000040
reserve 5 0 output 9 0 hold discard 0 -> avail 104 at 29272, ok, header 80000005
reserve 1000 0 bare output 4096 0 hold discard 0 -> avail 1136 at 30304, error 11, header 800003e8
reserve 1 0 bare output 8 4 hold discard 0 -> avail 1152 at 30320, error 22, header 80000001
headers -> 00000001 40000040 40000005 00000009 400003e8 40000001
take -> 1 bytes 09
query 2 -> 29184
take -> 9 bytes 71787f868d949ba2a9
take -> nothing
take -> nothing
query 2 -> 30320
asleep 0 -> woken by 0
asleep 1 -> not woken
asleep 2 -> woken by 0
asleep 3 -> woken by 0
asleep 1 0 0 -> not woken
asleep 1 1 2 -> woken by 2
asleep 1 3 -> woken by 1
reserve 0 0 submit 0 -> avail 40 at 30520
reserve 5 0 discard 1024 -> avail 56 at 30536
take -> 8 bytes 61686f767d848b92
output 19 0 -> ok
reserve 5 0 output 88 0 submit 0 -> avail 88 at 30584, ok
output 1036 0 -> ok
reserve 5 268435456 discard 2305843009213693952 -> null
query 0 -> 1232
take -> 8 bytes 61686f767d848b92
reserve 1 0 submit 0 -> avail 1232 at 31744
output 648 0 -> ok
reserve 8 0 submit 0 -> avail 1904 at 32416
take -> 0 bytes 
output 2 16777216 -> error 22
output 68 0 -> ok
output 49 0 -> ok
take -> 19 bytes dde4ebf2f900070e151c232a31383f46.. ffc6cf601d5c044d
output 96 7 -> error 22
query 4 -> 0
reserve 5 0 submit 0 -> avail 2008 at 32576
reserve 1000 0 output 730 0 submit 0 -> avail 3016 at 33584, ok
query 1 -> 4096
take -> 5 bytes fc030a1118
reserve 5 1 output 72 0 discard 0 -> null
reserve 8 0 output 816 0 submit 64 -> avail 3760 at 34344, error 11
take -> 88 bytes fc030a11181f262d343b424950575e65.. 126624718c5d2e35
query 2 -> 30680
output 218 0 -> ok
output 13 0 -> ok
take -> 1036 bytes 1b222930373e454c535a61686f767d84.. 53501f49298a0789
take -> 1 bytes 97
take -> 648 bytes b6bdc4cbd2d9e0e7eef5fc030a11181f.. 212e5ef5be273b9d
output 875 0 -> ok
take -> 8 bytes d5dce3eaf1f8ff06
output 75 0 -> ok
take -> 68 bytes 323940474e555c636a71787f868d949b.. a46824470fb09771
query 0 -> 3080
reserve 1 0 output 6098 68719476736 submit 2048 -> avail 3096 at 35592, error 22
output 1452 0 -> error 11
take -> 49 bytes 51585f666d747b828990979ea5acb3ba.. dd1d495c54d8890c
take -> 5 bytes cdd4dbe2e9
take -> 1000 bytes ecf3fa01080f161d242b323940474e55.. 05c7ca23cdf28d95
output 68 0 -> ok
reserve 1000 67108864 output 729 1 submit 268435456 -> null
output 74 6 -> error 22
take -> 730 bytes ecf3fa01080f161d242b323940474e55.. 32a350beb0eb1238
take -> 8 bytes 686f767d848b9299
take -> 218 bytes c5ccd3dae1e8eff6fd040b121920272e.. ccccbfda6f661db4
take -> 13 bytes e4ebf2f900070e151c232a3138
take -> 875 bytes 60676e757c838a91989fa6adb4bbc2c9.. 4bf9b5da5c31e99a
query 4 -> 0
reserve 1 0 discard 2 -> avail 200 at 35688
take -> 75 bytes 9ea5acb3bac1c8cfd6dde4ebf2f90007.. 0b12e9f46788d730
headers -> 00000001 00000044 40000001
reserve 5 0 submit 3 -> avail 128 at 35704
take -> 1 bytes fb
output 70 0 -> ok
take -> 68 bytes 969da4abb2b9c0c7ced5dce3eaf1f8ff.. 9af2f03cdb236c99
query 0 -> 112
take -> 5 bytes 0a11181f26
output 73 34359738368 -> error 22
reserve 64 0 submit 1 -> avail 152 at 35856
headers -> 00000046 00000040
reserve 8 0 output 78 0 submit 0 -> avail 168 at 35872, ok
take -> 70 bytes 484f565d646b727980878e959ca3aab1.. 2350eba684ca0d08
query 3 -> 35960
take -> 64 bytes e3eaf1f8ff060d141b222930373e454c.. 012ef31ee25acca5
take -> 8 bytes 21282f363d444b52
take -> 78 bytes 21282f363d444b525960676e757c838a.. 83f2785c5b11c53c
take -> nothing
take -> nothing
take -> nothing
take -> nothing
query 2 -> 35960
output 376 0 -> ok
output 73 0 -> ok
output 48 0 -> ok
output 34 0 -> ok
take -> 376 bytes 767d848b9299a0a7aeb5bcc3cad1d8df.. f8c25e53a28d844d
reserve 1000 0 submit 0 -> avail 1200 at 37544
take -> 73 bytes 959ca3aab1b8bfc6cdd4dbe2e9f0f7fe.. 6afa44c587761108
reserve 1000 0 submit 0 -> avail 2120 at 38552
reserve 2048 0 submit 0 -> null
query 3 -> 38552
reserve 1000 0 submit 1 -> avail 3128 at 39560
output 41 0 -> ok
take -> 48 bytes b4bbc2c9d0d7dee5ecf3fa01080f161d.. f4e6ba658536fa45
headers -> 00000022 000003e8 000003e8 000003e8 00000029
output 265 0 -> ok
take -> 34 bytes d3dae1e8eff6fd040b121920272e353c.. d2feed9c3eecfb08
take -> 1000 bytes 11181f262d343b424950575e656c737a.. bb76af7fb0220fd5
reserve 8 0 discard 0 -> avail 2368 at 39912
take -> 1000 bytes 4f565d646b727980878e959ca3aab1b8.. 991caf65c688d365
output 6505 0 -> error 11
output 1019 2251799813685248 -> error 22
take -> 1000 bytes acb3bac1c8cfd6dde4ebf2f900070e15.. c9e1a0514d91ec15
take -> 41 bytes cbd2d9e0e7eef5fc030a11181f262d34.. fa495b5f24bbf322
reserve 8 0 output 1022 7 discard 0 -> avail 312 at 39928, error 22
reserve 5 0 submit 0 -> avail 328 at 39944
output 46 0 -> ok
take -> 265 bytes 282f363d444b525960676e757c838a91.. 7b9771fdb73a696f
output 867 3 -> ok
output 36 0 -> ok
take -> 5 bytes 5e656c737a
take -> 46 bytes 7d848b9299a0a7aeb5bcc3cad1d8dfe6.. d4ccb563ecda78a4
output 21 1 -> ok
take -> 867 bytes bbc2c9d0d7dee5ecf3fa01080f161d24.. 3e95212d7a354bb3
output 745 3 -> ok
take -> 36 bytes dae1e8eff6fd040b121920272e353c43.. 152e9c7ccc35ffb1
headers -> 00000015 000002e9
reserve 1 0 submit 0 -> avail 808 at 41736
take -> 21 bytes 373e454c535a61686f767d848b9299a0.. f14ff7edc731c476
take -> 745 bytes 757c838a91989fa6adb4bbc2c9d0d7de.. 83f77782b57ca008
take -> 1 bytes d2
output 3 0 -> ok
reserve 64 0 submit 0 -> avail 88 at 41824
take -> 3 bytes 4e555c
reserve 8 0 output 898 1152921504606846976 submit 0 -> avail 88 at 41840, error 22
reserve 0 0 submit 0 -> avail 96 at 41848
take -> 64 bytes 6d747b828990979ea5acb3bac1c8cfd6.. 00a7c2e1042fae25
take -> 8 bytes abb2b9c0c7ced5dc
output 53 0 -> ok
take -> 0 bytes 
output 3492 0 -> ok
output 585 0 -> error 11
query 0 -> 3568
reserve 4081 0 discard 0 -> null
headers -> 00000035 00000da4
headers -> 00000035 00000da4
output 35 64 -> error 22
output 55 0 -> ok
reserve 4079 1 submit 0 -> null
reserve 64 0 submit 0 -> avail 3704 at 45552
output 363 0 -> ok
reserve 0 0 submit 2 -> avail 4088 at 45936
reserve 8 0 output 17 4503599627370496 submit 0 -> null
take -> 53 bytes 272e353c434a51585f666d747b828990.. 95568f77537e7166
reserve 1 0 output 898 4 submit 4 -> avail 4040 at 45952, error 22
reserve 1 0 output 139 0 discard 7 -> avail 4056 at 45968, error 11
reserve 64 0 output 7879 0 discard 0 -> null
output 53 0 -> error 11
reserve 5 0 submit 4 -> avail 4072 at 45984
take -> 3492 bytes 656c737a81888f969da4abb2b9c0c7ce.. 59432879c30786fd
reserve 0 0 output 15 0 submit 262144 -> avail 576 at 45992, ok
take -> 55 bytes 3e454c535a61686f767d848b9299a0a7.. 65a297d2766638f0
take -> 64 bytes 7c838a91989fa6adb4bbc2c9d0d7dee5.. de30cf3e11884125
take -> 363 bytes 9ba2a9b0b7bec5ccd3dae1e8eff6fd04.. 6fc87e877bde915b
take -> 0 bytes 
take -> 1 bytes 17
output 985 2 -> ok
