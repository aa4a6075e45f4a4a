/* srun (local), sbatch and salloc (allocator): nothing differs between the two contexts here. */
#include "options.h"
#include "plugin.h"

void client_init(spank_t spank)
{
	options_register(spank);
}
