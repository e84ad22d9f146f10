# Lines "round size kernel who median best", nanoseconds of a pass, to a table for each size, and a word on each aim that is missed.
# figure is "median" (over the rounds) or "best" (of all passes).

function take(all,   parts, count, i, j, swap) {
	count = split(all, parts, " ")
	for (i = 2; i <= count; i++)
		for (j = i; j > 1 && parts[j] + 0 < parts[j - 1] + 0; j--) {
			swap = parts[j]; parts[j] = parts[j - 1]; parts[j - 1] = swap
		}
	return parts[figure == "best" ? 1 : int((count + 1) / 2)] + 0
}

# GB/s of the best form of a peer; 0 where there is none.
function rate_of(key, who,   all, count, i, rate, most) {
	most = 0
	count = split(forms[key, who], all, " ")
	for (i = 1; i <= count; i++) {
		rate = moved / take(ns[key, all[i]])
		if (rate > most) { most = rate; form[key, who] = all[i] }
	}
	return most
}

function cell(rate, ours) {
	return rate ? sprintf("%.1f (%.2f)", rate, ours / rate) : "-"
}

function aim(text, got, wanted) {
	if (got < wanted) missed = missed sprintf("\n- %s, %s samples: " text, name[k], size[s], got)
}

{
	key = $2 " " $3
	who = $4
	sub(/:.*/, "", who)
	if (!((key, $4) in ns)) forms[key, who] = forms[key, who] " " $4
	ns[key, $4] = ns[key, $4] " " (figure == "best" ? $6 : $5)
}

END {
	n = split(sizes, size, " ")
	m = split(kernels, name, " ")
	for (s = 1; s <= n; s++) {
		printf "\n%s samples, GB/s by the %s pass (in brackets pciescope over the peer):\n\n", size[s], figure
		print "| kernel | ceiling | pciescope | of the ceiling | VOLK | numpy | gcc |" (figure == "best" ? "" : " spread |")
		print "|---|---|---|---|---|---|---|" (figure == "best" ? "" : "---|")
		for (k = 1; k <= m; k++) {
			key = size[s] " " name[k]
			if (!((key, "pciescope") in ns)) continue
			moved = take(ns[key, "moved"])
			rate = rate_of(key, "pciescope"); ceiling = rate_of(key, "ceiling")
			volk = rate_of(key, "volk"); numpy = rate_of(key, "numpy"); gcc = rate_of(key, "gcc"); wide = rate_of(key, "double")
			if (volk) used[form[key, "volk"]]
			if (wide) by_double = by_double sprintf("; %s, %s samples: %s", name[k], size[s], cell(wide, rate))
			printf "| %s | %.1f | %.1f | %.2f | %s | %s | %s |", name[k], ceiling, rate, rate / ceiling, cell(volk, rate), cell(numpy, rate),
				cell(gcc, rate)
			print figure == "best" ? "" : sprintf(" %.0f %% |", take(ns[key, "spread"]))
			if (take(ns[key, "error"]) > 0) missed = missed "\n- " name[k] " is wrong"
			if (size[s] > 1e6) {
				aim("%.2f of the ceiling, aim 0.95", rate / ceiling, 0.95)
				if (volk) aim("%.2f times VOLK, aim 2", rate / volk, 2)
			} else {
				if (volk) aim("%.2f of VOLK, aim 1", rate / volk, 1)
				if (numpy) aim("%.2f of numpy, aim 1", rate / numpy, 1)
				if (gcc) aim("%.2f of gcc's loop, aim 1", rate / gcc, 1)
			}
		}
	}
	list = ""
	for (one in used) list = list " " one
	print "\nVOLK's kernel at its best:" (list == "" ? " not there" : list)
	if (by_double) print "\ngcc's loop to f32 by way of double, in GB/s" by_double
	print missed == "" ? "\nEvery aim is met." : "\nNot met by the " figure " pass:\n" missed
}
