#!/bin/bash
# shellcheck disable=SC2034 # for those that source this: lab/setup-root and lab/setup-arm64
# Kernel modules that no virtual machine of the lab can use, by far the largest part of a kernel package.
readonly unused_modules=('*/kernel/sound/*' '*/kernel/drivers/gpu/*' '*/kernel/drivers/media/*'
	'*/kernel/drivers/net/wireless/*' '*/kernel/drivers/infiniband/*' '*/kernel/drivers/staging/*'
	'*/kernel/drivers/iio/*' '*/kernel/drivers/scsi/*' '*/kernel/drivers/isdn/*' '*/kernel/drivers/hid/*'
	'*/kernel/drivers/usb/*' '*/kernel/drivers/hwmon/*' '*/kernel/drivers/input/*' '*/kernel/drivers/bluetooth/*'
	'*/kernel/net/bluetooth/*' '*/kernel/net/mac80211/*' '*/kernel/net/netfilter/*' '*/kernel/drivers/mtd/*'
	'*/kernel/drivers/comedi/*' '*/kernel/drivers/accel/*' '*/kernel/drivers/net/can/*'
	'*/kernel/drivers/net/ethernet/mellanox/*' '*/kernel/drivers/net/ethernet/broadcom/*'
	'*/kernel/drivers/net/ethernet/chelsio/*' '*/kernel/drivers/net/ethernet/qlogic/*')
