// Searches for best keys: of many queries, again and again, or many small ones of one shape. See finder.h, searcher.h.

#include "finder.h"
#include "groups.h"

extern "C" int32_t weftc_nearest_groups(WeftGroups* all) {
  try {
    bool good = false;
    weftc::Team::run(all->threads, [&](weftc::Team& team) { good = weftc::find_in_groups(*all, team); });
    return good ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" void* weftc_finder(const WeftQueries* queries) {
  try {
    return new weftc::Finder(*queries);
  } catch (const std::exception&) {
    return nullptr;
  }
}

extern "C" void weftc_finder_free(void* finder) { delete (weftc::Finder*)finder; }

extern "C" int32_t weftc_find(void* finder, WeftFind* ask) {
  try {
    bool good = false;
    weftc::Team::run(ask->threads, [&](weftc::Team& team) { good = ((weftc::Finder*)finder)->find(*ask, team); });
    return good ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}
