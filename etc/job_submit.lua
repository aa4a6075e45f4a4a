--[[ slurmctld's handling of new and changed jobs for slurm-tiresias.

It passes the options of the SPANK plugin (--tiresias-model and so on) to the controller, as a hint
in the job's admin comment. It puts a job that can be preempted into the top band at submission;
otherwise the job would rank behind all others until the controller's next cycle. The start of a job
that may span several nodes is delayed for a moment, so that the controller can choose the nodes.

A job at a prompt (salloc, srun) gets no priority here, because only the controller knows how much
of the interactive lane its user has; the controller is nudged instead. If neither the user nor
the partition sets a time limit, the job gets prompt_limit_min, because the lane admits no job
without a limit.

A job whose owner changes it so that the controller will not manage it, or so that it may use more
than the controller knows, is delayed too, so that the controller first takes its priority back. Its
owner cannot make a running job unpreemptible with Requeue=0.

Copy it beside slurm.conf and set JobSubmitPlugins=lua. A site with its own job_submit.lua keeps
that one, adds dofile("/etc/slurm-tiresias/job_submit.lua") at its top, before its own functions,
and calls tiresias_job_submit(job_desc, part_list) at the end of its slurm_job_submit, and
tiresias_job_modify(job_desc, job_rec, part_list, modify_uid) at the end of its slurm_job_modify.

Nothing here makes a submission or an update fail. ]]

-- The same as [manage] and [priority] in tiresias.toml. ------------------------------------------

local partitions = { "gpu" }
local exclude = {} -- such as { "user=ann", "account=physics", "qos=debug" }

-- "priority" or "site-factor" as priority.write there; "nothing" while the controller is in shadow
-- mode: the jobs then stay as Slurm has them.
local write = "priority"

-- How long Slurm must not start a new job that may span several nodes: a little more than
-- controller.interval_s. The controller lets it start as soon as it has chosen the nodes; it takes
-- the whole time only if no controller runs. 0: Slurm starts it at once, on nodes of its choice.
local first_look_s = 15

-- The time limit in minutes of a job at a prompt without one. 0: it gets none.
local prompt_limit_min = 240

-- The file that makes the controller run a cycle at once, its controller.nudge_file. It must be on
-- a local file system, because slurmctld waits while it is written. "": none; the controller then
-- runs at its interval.
local nudge_file = "/run/slurm-tiresias-controller/nudge"

---------------------------------------------------------------------------------------------------

-- The lowest priority of the top tier, and the lowest of the lowest tier
-- (slurm_tiresias/controller/bands.py).
local TOP_TIER = { ["priority"] = 3000000000, ["site-factor"] = 1600000000 }
local LOWEST = { ["priority"] = 375000000, ["site-factor"] = 200000000 }

-- A little more than the controller's usual interval.
local LEAST_PUT_OFF_S = 15

local NO_REQUEUE_CHANGE = 65534 -- slurm.h, NO_VAL16
local PENDING, RUNNING = 0, 1 -- slurm.h, enum job_states, of which the low byte counts

local LONGEST_MODEL = 64
local LONGEST_PATH = 256
local MOST_GRACE_S = 3600

-- The signals that a program can catch; the same as in spank/options.c.
local SIGNALS = {
    "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM",
    "URG", "CONT", "XCPU", "PROF", "VTALRM", "WINCH", "PWR",
}

local function contains(list, value)
    for _, each in ipairs(list) do
        if each == value then
            return true
        end
    end
    return false
end

local function is_model(value)
    return #value <= LONGEST_MODEL and value:find("^[A-Za-z0-9][A-Za-z0-9._+-]*$") ~= nil
end

local function is_one_of(...)
    local words = { ... }
    return function(value)
        return contains(words, value)
    end
end

local function is_checkpoint(value)
    local signal, seconds = value:match("^([A-Z][A-Z0-9]*)@(%d%d?%d?%d?)$")
    return signal ~= nil
        and contains(SIGNALS, (signal:gsub("^SIG", "")))
        and tonumber(seconds) <= MOST_GRACE_S
end

-- An absolute path without empty names, "." and "..".
local function is_path(value)
    local names = value:gsub("/$", "") .. "/"
    return names:find("^/[A-Za-z0-9/._+@:~%%-]+/$") ~= nil
        and not (names:find("//", 1, true) or names:find("/%.%.?/"))
end

local function is_times(value)
    return value:find("^%d%d?$") ~= nil
end

-- The words of the hint in order, and the check of each value. Values from a client were checked
-- only by the client itself, and text that passes these checks is shown by the controller and on
-- other users' terminals.
local HINTS = {
    { name = "model", accepts = is_model },
    { name = "placement", accepts = is_one_of("auto", "consolidate", "spread") },
    { name = "profile", accepts = is_one_of("auto", "on", "off") },
    { name = "checkpoint", accepts = is_checkpoint },
    { name = "checkpoint-dir", accepts = is_path },
    { name = "restart", accepts = is_times },
}

-- Slurm's name for an option of a SPANK plugin in a submission: plugin, then option, with "_" for
-- "-".
local OPTION = "^_SLURM_SPANK_OPTION_tiresias_tiresias_([%l_]+)=(.*)$"

local function options_of(job_desc)
    local options = {}
    -- Numbered from 0, with gaps, which pairs handles and ipairs does not.
    for _, text in pairs(job_desc.spank_job_env or {}) do
        local name, value = text:match(OPTION)
        if name and #value <= LONGEST_PATH then
            options[name:gsub("_", "-")] = value
        end
    end
    return options
end

local function hint_of(job_desc)
    local options = options_of(job_desc)
    local words = {}
    for _, hint in ipairs(HINTS) do
        local value = options[hint.name]
        if value and hint.accepts(value) then
            words[#words + 1] = hint.name .. "=" .. value
        end
    end
    return #words > 0 and "tiresias:" .. table.concat(words, ",") or nil
end

local function add_to_admin_comment(job_desc, text)
    local comment = job_desc.admin_comment
    job_desc.admin_comment = comment and comment ~= "" and comment .. " " .. text or text
end

local function hand_on_hint(job_desc)
    local hint = hint_of(job_desc)
    if hint then
        add_to_admin_comment(job_desc, hint)
    end
end

local function default_partition(part_list)
    for name, partition in pairs(part_list or {}) do
        if partition.flag_default == 1 then
            return name
        end
    end
    return ""
end

local function only_in_managed_partitions(job, part_list)
    for name in (job.partition or default_partition(part_list)):gmatch("[^,]+") do
        if not contains(partitions, name) then
            return false
        end
    end
    return true
end

local POWERS = { [""] = 0, k = 1, m = 2, g = 3, t = 4, p = 5 }
local MOST_GPUS = 1000000

-- "4", "+4", "1k", "1KiB" or "1kB", as Slurm parses it; nil for a word that is not a count.
local function count_in(word)
    local digits, unit, bytes = word:lower():match("^%+?(%d+)([kmgtp]?)(i?b?)$")
    if digits == nil or bytes == "i" or (bytes ~= "" and unit == "") then
        return nil
    end
    return tonumber(digits) * (bytes == "b" and 1000 or 1024) ^ POWERS[unit]
end

-- The GPUs in "gres:gpu:4", "gres/gpu:a100:4" or, for one, "gres:gpu"; nil if the controller cannot
-- parse it either.
local function gpus_in(tres)
    local total = 0
    for spec in (tres or ""):gmatch("[^,]+") do
        local words = spec:match("^gres[:/]gpu$") and "" or spec:match("^gres[:/]gpu[:=](.*)$")
        if words then
            local last = words:match("([^:=]*)$")
            local count = count_in(last)
            if count == nil and (last:find("^%-") or words ~= last) then
                return nil
            end
            total = total + (count or 1)
        end
    end
    return total <= MOST_GPUS and total or nil
end

local function asks_for_gpus(job)
    local total = 0
    for _, field in ipairs({ "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }) do
        local count = gpus_in(job[field])
        if count == nil then
            return false
        end
        total = total + count
    end
    return total > 0
end

local function number_or_one(value)
    return (value == nil or value == slurm.NO_VAL) and 1 or value
end

local function may_lie_on_several_nodes(job_desc)
    if (gpus_in(job_desc.tres_per_task) or 0) > 0 then
        return number_or_one(job_desc.num_tasks) > 1
    end
    return (gpus_in(job_desc.tres_per_job) or 0) > 1 or number_or_one(job_desc.min_nodes) > 1
end

-- A begin time or nodes that the user has requested stay as they are.
local function put_off(job_desc)
    local chosen = (job_desc.begin_time or 0) ~= 0 or job_desc.req_nodes ~= nil
    if first_look_s <= 0 or write == "nothing" or chosen then
        return
    end
    job_desc.begin_time = os.time() + first_look_s
    add_to_admin_comment(job_desc, "tiresias-first-look:" .. job_desc.begin_time)
end

local function is_excluded(job)
    return contains(exclude, "user=" .. (job.user_name or ""))
        or contains(exclude, "account=" .. (job.account or job.default_account or ""))
        or contains(exclude, "qos=" .. (job.qos or job.default_qos or ""))
end

-- Whether the controller will manage the job, judged by what an update can change.
local function is_managed(job, part_list)
    return job.requeue ~= 0
        and (job.reservation or "") == ""
        and asks_for_gpus(job)
        and only_in_managed_partitions(job, part_list)
        and not is_excluded(job)
end

local function is_single_batch_job(job_desc)
    return job_desc.script ~= nil and job_desc.het_job_offset == slurm.NO_VAL
end

local function is_at_a_prompt(job_desc, part_list)
    return job_desc.script == nil
        and job_desc.het_job_offset == slurm.NO_VAL
        and asks_for_gpus(job_desc)
        and only_in_managed_partitions(job_desc, part_list)
        and not is_excluded(job_desc)
end

local function is_a_limit(minutes)
    return minutes ~= nil and minutes ~= slurm.NO_VAL and minutes ~= slurm.INFINITE
end

-- Slurm uses the partition's DefaultTime, or else its MaxTime; among several partitions, one that
-- has neither decides.
local function has_a_limit(job_desc, part_list)
    if job_desc.time_limit ~= slurm.NO_VAL then
        return true
    end
    for name in (job_desc.partition or default_partition(part_list)):gmatch("[^,]+") do
        local partition = part_list[name]
        if partition and not (is_a_limit(partition.default_time) or is_a_limit(partition.max_time)) then
            return false
        end
    end
    return true
end

local function limit_at_a_prompt(job_desc, part_list)
    if prompt_limit_min <= 0 or write == "nothing" or has_a_limit(job_desc, part_list) then
        return
    end
    job_desc.time_limit = prompt_limit_min
    slurm.log_user("slurm-tiresias: this job ends after %d minutes; another limit: --time=MINUTES",
        prompt_limit_min)
end

-- Priority 0 is a hold; any other was set by an operator, because Slurm ignores those of users.
local function pin(job_desc)
    if job_desc.priority ~= slurm.NO_VAL then
        return
    elseif write == "priority" then
        job_desc.priority = TOP_TIER[write]
    elseif write == "site-factor" then
        job_desc.site_factor = TOP_TIER[write]
    end
end

local function nudge()
    local file = nudge_file ~= "" and io.open(nudge_file, "w")
    if file then
        file:close()
    end
end

local function submit(job_desc, part_list)
    hand_on_hint(job_desc)
    if is_single_batch_job(job_desc) and is_managed(job_desc, part_list) then
        nudge()
        pin(job_desc)
        if may_lie_on_several_nodes(job_desc) then
            put_off(job_desc)
        end
    elseif is_at_a_prompt(job_desc, part_list) then
        nudge()
        limit_at_a_prompt(job_desc, part_list)
    end
end

local CHANGES_WHETHER_MANAGED = {
    "partition", "reservation", "account", "qos",
    "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
}

-- The values of these fields after the update, and whether any of them changes.
local function changed(job_desc, job_rec)
    local job, changes = {}, job_desc.requeue ~= NO_REQUEUE_CHANGE
    job.requeue = changes and job_desc.requeue or 1
    for _, field in ipairs(CHANGES_WHETHER_MANAGED) do
        local given = (job_desc[field] or "") ~= ""
        job[field] = given and job_desc[field] or job_rec[field]
        changes = changes or given
    end
    return job, changes or (job_desc.begin_time or 0) ~= 0
end

local GPU_FIELDS = { "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }

-- Compared with when the controller gave the job its priority.
local function may_use_more(job_desc, job_rec)
    for _, field in ipairs(GPU_FIELDS) do
        if (job_desc[field] or "") ~= "" then
            return true
        end
    end
    local limit = job_desc.time_limit
    return limit ~= nil and limit ~= slurm.NO_VAL and limit > job_rec.time_limit
end

local function modify(job_desc, job_rec, part_list, modify_uid)
    if write == "nothing" or modify_uid == 0 then
        return
    end
    local state, in_a_band = job_rec.job_state % 256, job_rec.priority >= LOWEST[write]
    local owner_forbids_requeue = job_desc.requeue == 0 and modify_uid == job_rec.user_id
    if state == RUNNING and in_a_band and owner_forbids_requeue then
        job_desc.requeue = NO_REQUEUE_CHANGE
    end
    if state ~= PENDING or not in_a_band then
        return
    end
    local job, changes = changed(job_desc, job_rec)
    if may_use_more(job_desc, job_rec) or (changes and not is_managed(job, part_list)) then
        -- No nudge: a file that cannot be opened leaves an error number behind, which slurmctld
        -- mistakes for its own, so that the update fails.
        local earliest = os.time() + math.max(first_look_s, LEAST_PUT_OFF_S)
        job_desc.begin_time = math.max(job_desc.begin_time or 0, earliest)
    end
end

local function without_fault(hook, ...)
    local done, fault = pcall(hook, ...)
    if not done then
        slurm.log_error("slurm-tiresias: job_submit.lua: %s", tostring(fault))
    end
end

function tiresias_job_submit(job_desc, part_list)
    without_fault(submit, job_desc, part_list)
end

function tiresias_job_modify(job_desc, job_rec, part_list, modify_uid)
    without_fault(modify, job_desc, job_rec, part_list, modify_uid)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    tiresias_job_submit(job_desc, part_list)
    return slurm.SUCCESS
end

-- Also called for every write of the controller.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    tiresias_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
